"""What the cluster profile asks for beside every pod: S3's authorities as a ConfigMap, and the Secrets that open the image registry.

Pods can read what lies in their own namespace only, so both are copied into each tenant's and the platform's. Pods get new authorities
when they start; a registry's Secret counts at the next pull.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainyard.contract import names
from trainyard.errors import ConfigError
from trainyard.settings import Settings
from trainyard.upkeep import objects
from trainyard.upkeep.applying import Applier
from trainyard.upkeep.changes import Change


def sync(settings: Settings, applier: Applier, *, dry_run: bool) -> Iterator[Change]:
    """Bring both up to date; what the profile no longer names stays.

    Raises:
        ConfigError: the bundle has gone since the configuration was read.
        RefusedError, UnavailableError: of the cluster.
    """
    for manifest in [*_authorities(settings), *_pull_secrets(settings, applier)]:
        if isinstance(manifest, Change):
            yield manifest
        elif (change := applier.apply(manifest, dry_run=dry_run)) is not None:
            yield change


def _authorities(settings: Settings) -> Iterator[objects.Manifest]:
    bundle = settings.cluster.s3.ca_bundle
    if bundle is None:
        return
    try:
        text = Path(bundle).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"clusters/{settings.cluster.name}.yaml: s3.ca_bundle: {bundle}: cannot be read: {error}") from error
    yield objects.config_map(names.CONFIG_MAP_CA, names.PLATFORM_NAMESPACE, {names.CA_KEY: text})
    for tenant in settings.tenants:
        yield objects.config_map(names.CONFIG_MAP_CA, names.namespace(tenant), {names.CA_KEY: text}, tenant)


def _pull_secrets(settings: Settings, applier: Applier) -> Iterator[objects.Manifest | Change]:
    for name in settings.cluster.image_pull_secrets:
        present = applier.read(objects.secret(name, names.PLATFORM_NAMESPACE, {}))
        if present is None:
            way_out = f"kubectl create secret docker-registry {name} --namespace {names.PLATFORM_NAMESPACE} --docker-server=… …"
            yield Change(f"Secret {names.PLATFORM_NAMESPACE}/{name}", "missing", f"image_pull_secrets names it: {way_out}")
            continue
        for tenant in settings.tenants:
            copy = objects.secret(name, names.namespace(tenant), {}, tenant)
            yield copy | {"type": present.get("type", "Opaque"), "data": present.get("data") or {}}
