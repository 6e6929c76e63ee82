"""S3's side of the tenants: buckets, identities, and the Secrets that carry their keys into pods.

On a managed server all of it is made here. A key lives in two places, the S3 server and the Secret; the Secret is the one that is
asked: if it is there and the server takes it, nothing is done; else a new key is made, put into the Secret, and the old ones end. So
deleting a Secret and syncing rotates its key. On external S3 the administrator makes all three, and what is missing is named.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainyard.contract import names
from trainyard.settings import Settings
from trainyard.store.identities import Buckets, IdentityServer, export_policy, run_policy, upkeep_policy
from trainyard.store.opening import Credentials, credentials
from trainyard.upkeep import objects
from trainyard.upkeep.applying import Applier
from trainyard.upkeep.changes import Change


@dataclass(frozen=True)
class Identity:
    """One S3 user, what it may, and the Secret that its pods read."""

    user: str
    policy: Mapping[str, Any]
    bucket: str
    """A bucket that it may list: to try a key on."""
    namespace: str
    secret: str
    tenant: str | None


def identities(settings: Settings) -> list[Identity]:
    """All identities that the tenants' files ask for."""
    prefix = settings.cluster.s3.bucket_prefix
    found = []
    for tenant in settings.tenants:
        buckets, here = Buckets.of(prefix, tenant), names.namespace(tenant)
        found.append(Identity(f"{prefix}-{tenant}-run", run_policy(buckets), buckets.data, here, names.SECRET_RUN, tenant))
        found.append(Identity(f"{prefix}-{tenant}-export", export_policy(buckets), buckets.data, here, names.SECRET_EXPORT, tenant))
    data = [names.data_bucket(prefix, tenant) for tenant in settings.tenants]
    if data:
        found.append(Identity(f"{prefix}-upkeep", upkeep_policy(data), data[0], names.PLATFORM_NAMESPACE, names.SECRET_UPKEEP, None))
    return found


class StorageSync:
    """Buckets, identities and Secrets of one deployment. Namespaces must be there (or be about to be, in a dry run)."""

    def __init__(self, settings: Settings, applier: Applier) -> None:
        self._settings = settings
        self._applier = applier

    def sync(self, *, dry_run: bool) -> Iterator[Change]:
        """Raises RefusedError and UnavailableError of either server."""
        if self._settings.cluster.s3.mode == "external":
            yield from self._missing_secrets()
            return
        server = IdentityServer(credentials(self._settings), self._settings.cluster.s3.region)
        present = server.buckets()
        for tenant in self._settings.tenants:
            buckets = Buckets.of(self._settings.cluster.s3.bucket_prefix, tenant)
            for bucket in (buckets.data, buckets.models):
                if bucket not in present:
                    if not dry_run:
                        server.make_bucket(bucket)
                    yield Change(f"bucket {bucket}", "create", f"of tenant {tenant}")
        users = server.users()
        for identity in identities(self._settings):
            yield from self._sync_identity(server, identity, known=identity.user in users, dry_run=dry_run)

    def _sync_identity(self, server: IdentityServer, identity: Identity, *, known: bool, dry_run: bool) -> Iterator[Change]:
        what = f"S3 identity {identity.user}"
        if not known:
            if not dry_run:
                server.make_user(identity.user)
            yield Change(what, "create", _may(identity.policy))
        if not known or server.policy(identity.user) != identity.policy:
            if not dry_run:
                server.set_policy(identity.user, identity.policy)
            if known:
                yield Change(what, "update", f"may now {_may(identity.policy)}")
        held = self._held(identity)
        if known and held is not None and held.access_key in server.keys(identity.user) and server.accepts(held, identity.bucket):
            return
        why = "keys access_key, secret_key" if held is None else "the server does not take the key it held"
        if not dry_run:
            key = server.make_key(identity.user, identity.bucket)
            self._applier.apply(self._secret(identity, key), dry_run=False)
            server.drop_keys(identity.user, keep=str(key.access_key))
        yield Change(f"Secret {identity.namespace}/{identity.secret}", "create" if held is None else "update", why)

    def _held(self, identity: Identity) -> Credentials | None:
        """The key that the Secret holds; None if there is none to be had of it."""
        present = self._applier.read(self._secret(identity, Credentials(None, "", "")))
        data = (present or {}).get("data") or {}
        try:
            access, secret = (base64.b64decode(data[key], validate=True).decode() for key in ("access_key", "secret_key"))
        except (KeyError, binascii.Error, UnicodeDecodeError):
            return None
        return replace(credentials(self._settings), access_key=access, secret_key=secret)

    @staticmethod
    def _secret(identity: Identity, key: Credentials) -> objects.Manifest:
        values = {"access_key": str(key.access_key), "secret_key": str(key.secret_key)}
        return objects.secret(identity.secret, identity.namespace, values, identity.tenant)

    def _missing_secrets(self) -> Iterator[Change]:
        for identity in identities(self._settings):
            if self._held(identity) is None:
                detail = f"s3 is external: make it with the keys access_key and secret_key of an identity that may {_may(identity.policy)}"
                yield Change(f"Secret {identity.namespace}/{identity.secret}", "missing", detail)


def _may(policy: Mapping[str, Any]) -> str:
    """A policy in words: ``list a; get, put, delete a/*``."""
    parts = []
    for statement in policy["Statement"]:
        verbs = ", ".join(action.removeprefix("s3:") for action in statement["Action"])
        places = ", ".join(resource.removeprefix("arn:aws:s3:::") for resource in statement["Resource"])
        parts.append(f"{verbs} on {places}")
    return "; ".join(parts)
