"""Which server and which identity: a tenant's buckets as Airflow's processes and the administrator's commands see them.

On managed S3 that identity is the administrator's, in a file that ``TRAINYARD_S3_CREDENTIALS`` names; pods get narrower ones from
Secrets (:mod:`trainyard.store.identities`) through the usual AWS variables.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from trainyard.contract import environment, names
from trainyard.errors import ConfigError
from trainyard.settings import Settings
from trainyard.store.objects import Store

CREDENTIALS_VARIABLE: Final = "TRAINYARD_S3_CREDENTIALS"


@dataclass(frozen=True)
class Credentials:
    """An identity, and the server it is good for."""

    endpoint: str | None
    access_key: str | None
    secret_key: str | None
    """Without keys, boto3's own search (instance roles, ~/.aws) is used."""
    ca_bundle: str | None = None
    """PEM file of the server's authorities; None: those that boto3 finds."""

    def __repr__(self) -> str:  # secrets do not belong into logs
        return f"Credentials(endpoint={self.endpoint!r}, access_key={self.access_key!r})"


def credentials(settings: Settings, environ: Mapping[str, str] | None = None) -> Credentials:
    """Who this process is towards S3.

    In this order: the file that TRAINYARD_S3_CREDENTIALS names (``{"endpoint", "access_key", "secret_key"}``), the AWS variables (a
    pod's), and, on external S3 only, boto3's own search.

    Raises:
        ConfigError: the file cannot be used, or managed S3 has no identity.
    """
    environ = os.environ if environ is None else environ
    s3 = settings.cluster.s3
    # This process stands where Airflow stands: pods have their endpoint in the run spec.
    endpoint = s3.airflow_endpoint or s3.endpoint
    if file := environ.get(CREDENTIALS_VARIABLE):
        return replace(_from_file(Path(file), endpoint), ca_bundle=s3.ca_bundle)
    access, secret = environ.get(environment.S3_ACCESS_KEY), environ.get(environment.S3_SECRET_KEY)
    if s3.mode == "managed" and not (access and secret):
        way_out = f"set {CREDENTIALS_VARIABLE} to the administrator's file (`trainyard up` makes var/s3/admin.json)"
        raise ConfigError(f"no S3 identity: {way_out}")
    if s3.mode == "managed" and endpoint is None:
        where = f"clusters/{settings.cluster.name}.yaml: s3.endpoint"
        raise ConfigError(f"{where}: managed S3 needs one: write it, or set TRAINYARD_S3_ENDPOINT")
    return Credentials(endpoint, access, secret, s3.ca_bundle)


def _from_file(path: Path, endpoint: str | None) -> Credentials:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        return Credentials(endpoint or value.get("endpoint"), str(value["access_key"]), str(value["secret_key"]))
    except (OSError, ValueError, KeyError, AttributeError) as error:
        way_out = 'it must be JSON: {"endpoint": …, "access_key": …, "secret_key": …}'
        raise ConfigError(f"{CREDENTIALS_VARIABLE}={path}: cannot be used ({error!r}): {way_out}") from error


def bucket_store(settings: Settings, bucket: str, identity: Credentials | None = None) -> Store:
    """Any bucket of this deployment."""
    who = identity or credentials(settings)
    s3 = settings.cluster.s3
    return Store(bucket, who.endpoint, s3.region, who.access_key, who.secret_key, who.ca_bundle, s3.public_endpoint)


def store_for(settings: Settings, tenant: str, identity: Credentials | None = None) -> Store:
    """The tenant's data bucket: datasets, code, runs."""
    return bucket_store(settings, names.data_bucket(settings.cluster.s3.bucket_prefix, tenant), identity)


def models_store_for(settings: Settings, tenant: str, identity: Credentials | None = None) -> Store:
    """The tenant's models bucket."""
    return bucket_store(settings, names.models_bucket(settings.cluster.s3.bucket_prefix, tenant), identity)
