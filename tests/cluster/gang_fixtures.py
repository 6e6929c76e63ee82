"""The fixture of the gang's tests, which ``conftest.py`` takes from here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kubernetes import client as k8s

from tests.cluster.gang_support import GangTenant, make_tenant
from tests.cluster.support import Profile
from tests.fixtures.identities import Identities
from tests.fixtures.s3 import S3Server


@pytest.fixture(scope="module")
def tenant(cluster: tuple[str, Profile], cluster_api: k8s.ApiClient, identities: Identities, s3_server: S3Server) -> Iterator[GangTenant]:
    """A tenant of the module's own, whose gangs are run by the identity *run*."""
    with identities.client(identities.run) as run_api:
        yield from make_tenant(cluster_api, run_api, cluster[1], s3_server)
