from __future__ import annotations

from pathlib import Path

import pytest

from local.kubelet.api import Json
from local.kubelet.images import Images
from local.kubelet.manager import PodManager
from local.kubelet.node import Capacity
from local.kubelet.start import Starter
from tests.unit.local.kubelet.bench import Reporter
from tests.unit.local.kubelet.conftest import FakeApi, FakeProcesses, pod_document
from tests.unit.local.kubelet.test_processes import wait_until


class Bench:
    def __init__(self, api: FakeApi, images: Images, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.processes, self.reporter = FakeProcesses(), Reporter()
        starter = Starter(api, self.processes, images, Capacity(4, 1 << 30), lambda uid: self.manager.changed(uid))  # type: ignore[arg-type]
        self.manager = PodManager(folder, starter, self.reporter)


@pytest.fixture
def bench(api: FakeApi, images: Images, tmp_path: Path) -> Bench:
    made = Bench(api, images, tmp_path / "pods")
    made.manager.start()
    return made


def named(name: str, uid: str, created: str = "2026-01-01T00:00:00Z") -> Json:
    return pod_document(uid=uid, metadata={"name": name, "namespace": "ns", "uid": uid, "creationTimestamp": created})


def test_a_pod_that_is_told_of_is_started_once(bench: Bench) -> None:
    for kind in ("ADDED", "MODIFIED", "MODIFIED"):
        bench.manager.told(kind, named("p", "u"))
    bench.manager.listed([named("p", "u")])
    wait_until(lambda: "main" in bench.processes.started, "not started")
    assert len(bench.processes.started) == 1
    bench.manager.stop()


def test_a_deleted_pod_is_ended_and_forgotten(bench: Bench) -> None:
    bench.manager.told("ADDED", named("p", "u"))
    wait_until(lambda: "main" in bench.processes.started, "not started")
    bench.processes.comes_up("main")
    bench.manager.told("DELETED", named("p", "u"))
    wait_until(lambda: ("TERM", "main") in bench.processes.signals, "no TERM")
    bench.processes.ends("main", 143)
    wait_until(lambda: bench.manager.find("ns", "p") is None, "still there")
    assert not (bench.folder / "u").exists()
    bench.manager.stop()


def test_what_vanished_while_nobody_watched_is_ended(bench: Bench) -> None:
    bench.manager.listed([named("p", "u"), named("q", "v")])
    wait_until(lambda: bench.manager.find("ns", "q") is not None, "not known")
    bench.manager.listed([named("q", "v")])
    wait_until(lambda: bench.manager.find("ns", "p") is None or ("TERM", "main") in bench.processes.signals, "not ended")
    bench.manager.stop()


def test_folders_of_pods_that_are_gone_are_removed_and_others_kept(bench: Bench) -> None:
    for uid in ("old", "u"):
        (bench.folder / uid / "containers").mkdir(parents=True)
    bench.manager.listed([named("p", "u")])
    assert [folder.name for folder in bench.folder.iterdir()] == ["u"]
    bench.manager.stop()


def test_the_newest_pod_of_a_name_is_found(bench: Bench) -> None:
    bench.manager.stop()
    for uid, created in (("a", "2026-01-01T00:00:05Z"), ("b", "2026-01-01T00:00:05Z"), ("c", "2026-01-01T00:00:01Z")):
        bench.manager.told("ADDED", named("p", uid, created))
    found = bench.manager.find("ns", "p")
    assert found is not None
    assert found.uid == "b", "of two made in one second, the later"
    found.remove()
    again = bench.manager.find("ns", "p")
    assert again is not None
    assert again.uid == "a", "one that is gone comes last"
    assert bench.manager.find("other", "p") is None


def test_an_object_that_breaks_something_does_not_keep_the_others_out(bench: Bench) -> None:
    broken = named("p", "u")
    del broken["spec"]
    bench.manager.listed([broken, named("q", "v")])
    assert bench.manager.find("ns", "q") is not None
    wait_until(lambda: "main" in bench.processes.started, "not started")
    bench.manager.stop()


def test_deletion_of_a_pod_nobody_knows(bench: Bench) -> None:
    bench.manager.told("DELETED", named("p", "never-seen"))
    assert bench.manager.find("ns", "p") is None
    bench.manager.stop()
