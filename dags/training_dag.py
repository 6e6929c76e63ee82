"""One training DAG for each pipeline of one tenant: the tenant that the folder of this file is named after.

A Dag file cannot ask which bundle it is in. `trainyard sync` therefore copies this one into a folder for each tenant, which is that
tenant's bundle; in the checkout's own `dags/`, which is no bundle, it makes nothing.

(Airflow passes over files in which it does not find both the words "dag" and "airflow".)
"""

from __future__ import annotations

from pathlib import Path

from trainyard.pipelines.factory import tenant_dags

HERE = Path(__file__).resolve().parent

if HERE.name != "dags":
    globals().update(tenant_dags(HERE.name))
