"""``trainyard sync``: Airflow, the cluster and S3 made what the tenants' files say. Idempotent; deletes no data.

Order matters: the database's teams before the settings that name them (a bundle of an unknown team stops Airflow's start), namespaces
before the Secrets in them. Airflow's processes need not run; those of :func:`needs_restart` are read by them at their start only.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from trainyard.errors import RefusedError
from trainyard.kube.client import client
from trainyard.settings import Settings
from trainyard.upkeep import airflow_tables, network, objects, site
from trainyard.upkeep.airflow_files import AirflowFiles
from trainyard.upkeep.applying import Applier
from trainyard.upkeep.changes import Change, needs_restart
from trainyard.upkeep.storage import StorageSync

__all__ = ["Change", "needs_restart", "sync", "sync_cluster"]


def sync(settings: Settings, state_dir: Path | str, dry_run: bool = False) -> list[Change]:
    """All of it; what differed is returned, and made unless ``dry_run``.

    Raises:
        ConfigError: the cluster or S3 is not named, or its credentials are not.
        UnavailableError: Airflow's database, the cluster or S3 does not answer.
        RefusedError: one of them refuses, a namespace is somebody else's, or a tenant's file is gone while runs of it have not ended.
    """
    state = Path(state_dir).resolve()
    with client(settings.cluster.sync_kubeconfig or settings.cluster.kubeconfig, sync=True):
        pass  # a cluster that is not named is said before anything is asked
    # Airflow's tables first: they know whether a tenant is drained, and whether one may go at all.
    tables = airflow_tables.sync(settings, state / "airflow", dry_run=dry_run)
    cluster = sync_cluster(settings, dry_run, tables.drained)
    return [*cluster, *tables.changes, *AirflowFiles(settings, state).sync(dry_run=dry_run)]


def sync_cluster(settings: Settings, dry_run: bool = False, drained: Collection[str] | None = None) -> list[Change]:
    """The cluster's and S3's part, as the identity *sync* (``deploy/rbac``) or an administrator.

    Args:
        settings: the configuration.
        dry_run: only say what differs.
        drained: the draining tenants without a run that has not ended: their quota becomes 0. None where Airflow was not asked: then the
            quota of a tenant that is draining is left as it is.

    Raises:
        RefusedError: the cluster refuses, or the administrator has not applied ``deploy/rbac`` yet.
    """
    cluster = settings.cluster
    with client(cluster.sync_kubeconfig or cluster.kubeconfig, sync=True) as api:
        applier = Applier(api)
        for role in objects.ROLES:
            if applier.read(objects.cluster_role(role)) is None:
                raise RefusedError(f"the cluster has no ClusterRole {role}: an administrator runs once: kubectl apply -f deploy/rbac")
        manifests = objects.platform_objects(host_network=cluster.pods.host_network)
        for tenant in settings.tenants.values():
            theirs = objects.tenant_objects(tenant, cluster, closed=tenant.name in (drained or ()))
            if tenant.state == "draining" and drained is None and applier.read(theirs[0]) is not None:
                # A namespace without any would have no bound at all.
                theirs = [one for one in theirs if one["kind"] != "ResourceQuota" or applier.read(one) is None]
            manifests += theirs
        changes = [change for manifest in manifests if (change := applier.apply(manifest, dry_run=dry_run))]
        changes += network.sync(settings, applier, dry_run=dry_run)
        changes += site.sync(settings, applier, dry_run=dry_run)
        return [*changes, *StorageSync(settings, applier).sync(dry_run=dry_run)]
