"""Trainyard's configuration: YAML files read into frozen models, checked as a whole. Pure: no network, Airflow, Kubernetes, boto3.

Others call :func:`load` (everything, or an error with all problems) and :func:`load_tenant` (what one tenant's DAGs need, tolerant
of what is wrong elsewhere).
"""

from trainyard.settings.clusters import ClusterProfile
from trainyard.settings.datasets import Dataset, DatasetVersion
from trainyard.settings.loading import Settings, TenantView, load, load_tenant
from trainyard.settings.pipelines import Gang, Pipeline, Training
from trainyard.settings.tenants import Slot, Tenant

__all__ = [
    "ClusterProfile",
    "Dataset",
    "DatasetVersion",
    "Gang",
    "Pipeline",
    "Settings",
    "Slot",
    "Tenant",
    "TenantView",
    "Training",
    "load",
    "load_tenant",
]
