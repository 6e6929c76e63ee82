"""Taking down: every DELETE names its policy, and what does not go is made to go."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes import client as k8s

from trainyard.errors import UnavailableError
from trainyard.kube import takedown
from trainyard.kube.takedown import Takedown


class Clock:
    """Time that passes only when somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Cluster:
    """One Job with one pod whose node is dead: only force removes it."""

    def __init__(self, *, force_works: bool) -> None:
        self.job, self.pod = True, True
        self.force_works = force_works
        self.deleted: list[tuple[str, dict[str, Any]]] = []

    def _list(self, there: bool, name: str) -> Any:
        metadata = k8s.V1ObjectMeta(name=name, owner_references=[object()])
        return SimpleNamespace(items=[SimpleNamespace(metadata=metadata)] if there else [])

    def list_namespaced_job(self, *_: Any, **__: Any) -> Any:
        return self._list(self.job, "job")

    def list_namespaced_pod(self, *_: Any, **__: Any) -> Any:
        return self._list(self.pod, "pod")

    def list_namespaced_service(self, *_: Any, **__: Any) -> Any:
        return self._list(False, "")

    list_namespaced_network_policy = list_namespaced_service

    def delete_namespaced_job(self, name: str, _: str, **options: Any) -> None:
        self.deleted.append((name, options))

    def delete_namespaced_pod(self, name: str, _: str, **options: Any) -> None:
        self.deleted.append((name, options))
        if self.force_works:
            self.job = self.pod = False


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(takedown, "time", clock)
    return clock


def remove(cluster: Cluster, clock: Clock, monkeypatch: pytest.MonkeyPatch, said: list[str]) -> float:
    for api in ("CoreV1Api", "BatchV1Api", "NetworkingV1Api"):
        monkeypatch.setattr(k8s, api, lambda _: cluster)
    return Takedown(None, "ns", said.append).remove("run", poll=lambda: clock.sleep(1))  # type: ignore[arg-type]


def test_a_pod_on_a_dead_node_is_removed_by_force_after_its_grace(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, said = Cluster(force_works=True), []  # type: ignore[var-annotated]
    took = remove(cluster, clock, monkeypatch, said)
    assert takedown.FORCE_AFTER_S < took < takedown.FORCE_AFTER_S + 5
    (job, options), (pod, forced) = cluster.deleted
    assert (job, options["propagation_policy"]) == ("job", "Foreground")
    assert (pod, forced["grace_period_seconds"], forced["propagation_policy"]) == ("pod", 0, "Background")
    assert "by force" in said[0]


def test_what_stays_all_the_same_is_named_within_the_bound(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnavailableError, match=r"still in namespace ns .* pod, job"):
        remove(Cluster(force_works=False), clock, monkeypatch, [])
    assert clock.now <= takedown.GIVE_UP_AFTER_S + 5


def test_a_pod_is_given_up_as_kubernetes_own_collector_does_it() -> None:
    """Without the phase its Job never lets go of it, and without the condition it counts as the replica's failure."""
    calls: list[tuple[str, Any]] = []

    class Core:
        def patch_namespaced_pod_status(self, name: str, namespace: str, body: Any, **_: Any) -> None:
            calls.append(("patch", body["status"]))

        def delete_namespaced_pod(self, name: str, namespace: str, **options: Any) -> None:
            calls.append(("delete", options["grace_period_seconds"]))

    takedown.abandon_pod(Core(), "p", "ns", "node n does not answer")  # type: ignore[arg-type]
    (_, status), deleted = calls
    assert status["phase"] == "Failed"
    assert [(c["type"], c["status"]) for c in status["conditions"]] == [("DisruptionTarget", "True")]
    assert deleted == ("delete", 0)
