"""The namespace that a doctor makes for its pods, and the pods in it: composed as every pod of ours, gone at the end.

It is called ``trainyard-doctor-<hash>`` and is no tenant's: a probe needs no quota and takes nobody's. What a killed doctor leaves ends by
itself (:data:`POD_LIFE_S`), and the next one removes it.
"""

from __future__ import annotations

import datetime
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Final

from kubernetes import client as k8s

from trainyard.contract import names
from trainyard.errors import RefusedError, UnavailableError
from trainyard.kube.client import TIMEOUT, ask
from trainyard.kube.pod import CONTAINER, PodParts, Site, as_pod, pod_template
from trainyard.kube.quota import message_of
from trainyard.settings.clusters import ClusterProfile
from trainyard.upkeep import objects

LABEL: Final = f"{names.LABEL_PREFIX}doctor"
PREFIX: Final = "trainyard-doctor-"
RESOURCES: Final = {"cpu": "50m", "memory": "96Mi", "ephemeral-storage": "32Mi"}
"""Small: a probe must find its place on a cluster that is busy."""
POD_LIFE_S: Final = 900
"""A probe's own deadline: it holds when the doctor is gone."""
LEFT_AFTER_S: Final = 2 * POD_LIFE_S
"""A doctor's namespace that is older is nobody's any more."""
GONE_S: Final = 120.0
"""A namespace is gone when its pods are, and the controllers have looked: 5 to 10 s, as measured."""
POLL_S: Final = 0.3


def script() -> str:
    """The program of every probe's pod."""
    return resources.files("trainyard.upkeep.examining").joinpath("probe.py").read_text(encoding="utf-8")


@dataclass
class Probe:
    """One pod, as it was last seen."""

    name: str
    pod: k8s.V1Pod
    not_started_at: float
    """Seconds of our clock at which its container had not started yet, as far as was seen."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What it said of itself, once that was heard."""
    created_at: float = 0.0
    """Seconds of our clock."""
    heard_at: float = 0.0
    """Seconds of our clock at which :meth:`Probes.hear` last heard it."""

    @property
    def phase(self) -> str:
        return str(self.pod.status.phase or "Pending")

    @property
    def over(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def node(self) -> str | None:
        node: str | None = self.pod.spec.node_name
        return node

    def _state(self) -> k8s.V1ContainerState | None:
        statuses = [s for s in self.pod.status.container_statuses or [] if s.name == CONTAINER]
        return statuses[0].state if statuses else None

    @property
    def started(self) -> bool:
        """Whether its container runs or ran."""
        state = self._state()
        return bool(state and (state.running or state.terminated))

    @property
    def waits(self) -> tuple[str, str]:
        """Reason and message of a container that does not start; empty where nothing is said."""
        state = self._state()
        waiting = state.waiting if state else None
        return (waiting.reason or "", waiting.message or "") if waiting else ("", "")

    @property
    def refusal(self) -> str:
        """The scheduler's words; empty where it has said nothing, or has found a node."""
        for condition in self.pod.status.conditions or []:
            if condition.type == "PodScheduled" and condition.status == "False":
                return str(condition.message or condition.reason or "")
        return ""

    @property
    def end(self) -> str:
        """How it failed, in one line."""
        state = self._state()
        ended = state.terminated if state else None
        if ended is None:
            return f"{self.pod.status.reason or self.phase}: {self.pod.status.message or 'no container has run'}"
        message = (ended.message or "").strip().splitlines()
        return f"{ended.reason or 'ended'} (exit code {ended.exit_code})" + (f": {message[-1]}" if message else "")


@dataclass
class Probes:
    """The doctor's own namespace; nothing is made before :meth:`open`."""

    api: k8s.ApiClient
    profile: ClusterProfile
    name: str = field(default_factory=lambda: f"{PREFIX}{secrets.token_hex(4)}")
    now: Callable[[], float] = time.time
    opened: bool = False

    def __post_init__(self) -> None:
        self.core = k8s.CoreV1Api(self.api)

    # ------------------------------------------------------------------------------------------------------ the namespace
    def open(self) -> None:
        """Make the namespace and what the profile's pods need in it; of what is there already nothing is touched.

        Raises:
            RefusedError: the API server refuses it, or a Secret that the profile names for pulling is not there.
            UnavailableError: the API server does not answer.
        """
        if self.opened:
            return
        namespace = objects.namespace(self.name, host_network=self.profile.pods.host_network)
        namespace["metadata"]["labels"][LABEL] = self.name.removeprefix(PREFIX)
        self.opened = True  # from here on: an interrupted call may have been heard
        self._make(self.core.create_namespace, namespace)
        self._make(self.core.create_namespaced_service_account, objects.service_account(names.SERVICE_ACCOUNT, self.name), self.name)
        for secret in self.profile.image_pull_secrets:
            self._copy_pull_secret(secret)
        if self.profile.s3.ca_bundle is not None:
            data = {names.CA_KEY: Path(self.profile.s3.ca_bundle).read_text(encoding="utf-8")}
            self._make(self.core.create_namespaced_config_map, objects.config_map(names.CONFIG_MAP_CA, self.name, data), self.name)

    def _copy_pull_secret(self, name: str) -> None:
        try:
            found = ask(self.core.read_namespaced_secret, name, names.PLATFORM_NAMESPACE)
        except k8s.ApiException as error:
            if error.status != 404:
                raise
            raise RefusedError(f"image_pull_secrets: there is no Secret {name} in namespace {names.PLATFORM_NAMESPACE}") from error
        self._make(self.core.create_namespaced_secret, {"metadata": {"name": name}, "type": found.type, "data": found.data}, self.name)

    def secret(self, name: str, values: Mapping[str, str]) -> None:
        """Make a Secret for probes to read."""
        self._make(self.core.create_namespaced_secret, objects.secret(name, self.name, values), self.name)

    def _make(self, call: Callable[..., object], body: object, *where: str) -> None:
        ask(call, *where, body)

    def sweep(self) -> list[str]:
        """Remove what killed doctors have left; returns the names."""
        left = []
        for namespace in ask(self.core.list_namespace, label_selector=LABEL).items:
            metadata = namespace.metadata
            age = self.now() - metadata.creation_timestamp.replace(tzinfo=datetime.UTC).timestamp()
            if metadata.name.startswith(PREFIX) and age > LEFT_AFTER_S and metadata.deletion_timestamp is None:
                self._delete(metadata.name)
                left.append(metadata.name)
        return left

    def _delete(self, name: str) -> None:
        try:
            ask(self.core.delete_namespace, name)
        except k8s.ApiException as error:
            if error.status not in (404, 409):  # 409: it is being deleted
                raise

    def close(self) -> None:
        """Delete the namespace and wait until it is gone.

        Raises:
            UnavailableError: it is still there after :data:`GONE_S`, or the API server does not answer; the text names it.
        """
        if not self.opened:
            return
        try:
            self._delete(self.name)
            ends = time.monotonic() + GONE_S
            while ask(self.core.list_namespace, field_selector=f"metadata.name={self.name}").items:
                if time.monotonic() > ends:
                    raise UnavailableError(f"namespace {self.name} is still there {GONE_S:.0f} s after its removal: {self._why_left()}")
                time.sleep(POLL_S)
        except UnavailableError as error:
            raise UnavailableError(f"{error}; look after it: kubectl delete namespace {self.name}") from error
        self.opened = False

    def _why_left(self) -> str:
        found = ask(self.core.list_namespace, field_selector=f"metadata.name={self.name}").items
        said = [c.message for namespace in found for c in namespace.status.conditions or [] if c.status == "True"]
        return "; ".join(said) or "nobody says why"

    # ------------------------------------------------------------------------------------------------------------ its pods
    def start(
        self,
        name: str,
        *arguments: str,
        image: str | None = None,
        secrets: Mapping[str, tuple[str, str]] | None = None,
        hostname: str | None = None,
        subdomain: str | None = None,
        labels: Mapping[str, str] | None = None,
        spread_by: Mapping[str, str] | None = None,
        counts_scratch: bool | None = None,
    ) -> Probe:
        """Create a pod that runs the probe with these arguments.

        Raises:
            RefusedError: the API server refuses the pod, in its words.
            UnavailableError: it does not answer.
        """
        site = Site.of(self.profile, image)
        counts = self.profile.counts_scratch if counts_scratch is None else counts_scratch
        ours = {names.LABEL_MANAGED_BY: names.MANAGED_BY, LABEL: self.name.removeprefix(PREFIX), **(labels or {})}
        parts = PodParts(
            site=site,
            command=["python3", "-c", script(), *arguments],
            resources={key: amount for key, amount in RESOURCES.items() if counts or key != "ephemeral-storage"},
            scratch=RESOURCES["ephemeral-storage"],
            environment={},
            labels=ours,
            secrets=secrets or {},
            subdomain=subdomain,
            spread_by=spread_by,
            active_deadline_s=POD_LIFE_S,
        )
        pod = as_pod(pod_template(parts), name, self.name)
        pod.spec.hostname = hostname
        try:
            made = ask(self.core.create_namespaced_pod, self.name, self.api.sanitize_for_serialization(pod))
        except k8s.ApiException as error:
            raise RefusedError(f"the API server refuses a pod: {message_of(error)}") from error
        now = self.now()
        return Probe(name, made, now, created_at=now)

    def look(self, probe: Probe) -> Probe:
        """The pod as it is now."""
        asked = self.now()
        probe.pod = ask(self.core.read_namespaced_pod, probe.name, self.name)
        if not probe.started:
            probe.not_started_at = asked
        return probe

    def wait(self, probe: Probe, until: Callable[[Probe], bool], seconds: float) -> bool:
        """Look until the condition holds; False when the time is over."""
        ends = time.monotonic() + seconds
        while not until(self.look(probe)):
            if time.monotonic() > ends:
                return False
            time.sleep(POLL_S)
        return True

    def said(self, probe: Probe) -> list[dict[str, Any]]:
        """What it has printed so far.

        Raises:
            UnavailableError: its log cannot be had: the API server does not reach the kubelet.
        """
        try:
            answer = self.core.read_namespaced_pod_log(
                probe.name, self.name, container=CONTAINER, _preload_content=False, _request_timeout=TIMEOUT
            )
            text = answer.data.decode(errors="replace")
        except k8s.ApiException as error:
            raise UnavailableError(f"the log of a pod on node {probe.node} cannot be read: {message_of(error)}") from error
        found = []
        for line in text.splitlines():
            try:
                document = json.loads(line)
            except ValueError:
                continue
            if isinstance(document, dict) and "step" in document:
                found.append(document)
        return found

    def hear(self, probe: Probe, steps: Sequence[str], seconds: float) -> dict[str, Any] | None:
        """The first of these steps that it prints; None when it has ended without, or the time is over."""
        ends = time.monotonic() + seconds
        while True:
            over = self.look(probe).over
            if probe.started:
                for document in self.said(probe):
                    if document["step"] in steps:
                        probe.heard_at = self.now()
                        return document
            if over or time.monotonic() > ends:
                return None
            time.sleep(POLL_S)
