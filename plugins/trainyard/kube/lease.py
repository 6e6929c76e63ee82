"""A lock in the cluster: a Lease that one holder has at a time, and that a dead holder loses by itself.

It is held for the seconds in which a gang's pods are created, so that two gangs of one tenant cannot both see the same free room and
then get half of it each. The Lease is moved by resourceVersion (compare-and-swap), as Kubernetes' own leader election does it.
"""

from __future__ import annotations

import datetime
import time
from types import TracebackType
from typing import Final, Self

from kubernetes import client as k8s

from trainyard.kube.client import ask

HELD_S: Final = 30
"""A holder that has not renewed for so long is gone."""


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


class ClusterLock:
    """One Lease as a lock; :meth:`try_acquire` never blocks, :meth:`renew` is to be called at least every ten seconds."""

    def __init__(self, api: k8s.ApiClient, namespace: str, name: str, holder: str, held_s: int = HELD_S) -> None:
        self._leases = k8s.CoordinationV1Api(api)
        self._namespace, self._name, self._holder, self._held_s = namespace, name, holder, held_s
        self._held = False
        # Another machine's clock says nothing about ours: a Lease counts as abandoned when *we* have seen it unchanged for long enough.
        self._seen: tuple[str, float] | None = None
        self.other: str | None = None
        """Who holds it, after a :meth:`try_acquire` that returned False."""

    def _spec(self) -> k8s.V1LeaseSpec:
        return k8s.V1LeaseSpec(holder_identity=self._holder, lease_duration_seconds=self._held_s, renew_time=_now())

    def try_acquire(self) -> bool:
        """Take the lock if nobody has it; True when it is ours."""
        try:
            lease = ask(self._leases.read_namespaced_lease, self._name, self._namespace)
        except k8s.ApiException as error:
            if error.status != 404:
                raise
            metadata = k8s.V1ObjectMeta(name=self._name, namespace=self._namespace)
            return self._write(self._leases.create_namespaced_lease, k8s.V1Lease(metadata=metadata, spec=self._spec()))
        holder = lease.spec.holder_identity
        if holder and holder != self._holder and not self._abandoned(lease):
            self.other = holder
            return False
        lease.spec = self._spec()
        return self._write(self._leases.replace_namespaced_lease, lease)

    def _write(self, call, lease: k8s.V1Lease) -> bool:  # type: ignore[no-untyped-def]
        arguments = (self._namespace, lease) if call == self._leases.create_namespaced_lease else (self._name, self._namespace, lease)
        try:
            ask(call, *arguments)
        except k8s.ApiException as error:
            if error.status == 409:  # somebody else was quicker
                self._held = False
                return False
            raise
        self._held = True
        return True

    def _abandoned(self, lease: k8s.V1Lease) -> bool:
        version = lease.metadata.resource_version
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, time.monotonic())
        return time.monotonic() - self._seen[1] > (lease.spec.lease_duration_seconds or self._held_s)

    def renew(self) -> bool:
        """Say that we are alive; False when the lock was lost meanwhile."""
        return self._held and self.try_acquire()

    def release(self) -> None:
        """Give the lock up, if it is ours. What fails here heals by itself: the Lease is abandoned after its time."""
        if not self._held:
            return
        self._held = False
        try:
            lease = ask(self._leases.read_namespaced_lease, self._name, self._namespace)
            if lease.spec.holder_identity == self._holder:
                lease.spec.holder_identity = None
                ask(self._leases.replace_namespaced_lease, self._name, self._namespace, lease)
        except k8s.ApiException as error:
            if error.status not in (404, 409):
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()
