"""The deployment that is examined: its settings, the clients to ask with, and what the checks leave for those after them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import TracebackType
from typing import Self

from kubernetes import client as k8s

from trainyard.errors import TrainyardError
from trainyard.kube.client import client
from trainyard.kube.quota import message_of
from trainyard.settings import Settings
from trainyard.store import Store
from trainyard.upkeep.examining.probes import Probe, Probes


@dataclass
class Patient:
    """One deployment, examined once. A context manager: what was made for the examination is gone at its end, however it ends.

    Args:
        settings: the configuration, with the cluster profile that is examined; its ``kubeconfig`` is the one that Airflow's processes use.
        kubeconfig: of the administrator who examines; None: the same as Airflow's.
        now: our clock, seconds since the epoch.
        remark: takes a line that is worth knowing and is no finding.
    """

    settings: Settings
    kubeconfig: str | None = None
    now: Callable[[], float] = time.time
    remark: Callable[[str], None] = lambda line: None

    mark: str = field(default_factory=lambda: secrets.token_hex(4))
    """In the names of all that the examination makes."""
    pods: dict[str, Probe] = field(default_factory=dict)
    """Probes by name, once created."""
    counts_scratch: bool | None = None
    """What the nodes say, where it is known: a wrong word in the profile must not hide what else is wrong."""
    bucket: Store | None = None
    """A bucket that may be written, once S3 was tried from here."""
    undo: list[Callable[[], None]] = field(default_factory=list)
    """What is to be done at the end, the last first."""

    def __post_init__(self) -> None:
        self.airflow_kubeconfig = self.settings.cluster.kubeconfig
        if self.kubeconfig is not None:
            ours = self.settings.cluster.model_copy(update={"kubeconfig": self.kubeconfig})
            self.settings = replace(self.settings, cluster=ours)

    @property
    def profile_file(self) -> str:
        """The profile's file, as errors name it."""
        return f"clusters/{self.settings.cluster.name}.yaml"

    @property
    def one_identity(self) -> bool:
        """Whether the administrator examines with the kubeconfig that Airflow uses."""
        return self.kubeconfig is None or self.kubeconfig == self.airflow_kubeconfig

    @cached_property
    def api(self) -> k8s.ApiClient:
        """The administrator's client. Raises ConfigError."""
        return client(self.settings.cluster.kubeconfig)

    @cached_property
    def airflow_api(self) -> k8s.ApiClient:
        """Airflow's client, where it has a kubeconfig. Raises ConfigError."""
        return self.api if self.one_identity else client(self.airflow_kubeconfig)

    @cached_property
    def core(self) -> k8s.CoreV1Api:
        return k8s.CoreV1Api(self.api)

    @cached_property
    def probes(self) -> Probes:
        """The namespace of the examination's pods: not made before it is opened."""
        made = Probes(self.api, self.settings.cluster, now=self.now)
        self.undo.append(made.close)
        return made

    def close(self) -> list[str]:
        """Take away what was made; what could not be is returned, in words."""
        problems: list[str] = []
        while self.undo:
            try:
                self.undo.pop()()
            except TrainyardError as error:
                problems.append(str(error))
            except k8s.ApiException as error:
                problems.append(f"the API server refuses: {message_of(error)}")
        return problems

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for problem in self.close():
            self.remark(f"left behind: {problem}")
