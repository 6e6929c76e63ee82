"""A gang's supervisors through S3: restarts in place, failures told, results published once, and nobody left over."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from tests.fixtures.cable import cable
from tests.fixtures.s3 import free_ports
from tests.unit.images.trainer.supervisor.conftest import Container, Containers, until

FOREVER = "import time; print('serving'); time.sleep(600)"
GOOD_CHIEF = "import json, time; print('training'); open('result.json', 'w').write(json.dumps({'checkpoint_step': 90, 'loss': 0.5}))"
DIES_ONCE = "import os\nopen('lives', 'a').write('x')\nif len(open('lives').read()) < 2: os.kill(os.getpid(), 9)\n"


class Gang:
    """A generation of a run in the test's bucket."""

    def __init__(self, containers: Containers) -> None:
        self.containers = containers
        self.client = containers.server.client()
        self.root = f"runs/{containers.run}/"
        self.document = {
            "generation": 3,
            "addresses": {
                "chief": [f"127.0.0.1:{free_ports(1)[0]}"],
                "ps": ["127.0.0.1:2"],
                "worker": ["127.0.0.1:3", "127.0.0.1:4"],
            },
        }
        self.hold(3)

    def hold(self, generation: int) -> None:
        self.put("generation.json", {"generation": generation, "spec_sha256": "0" * 64})

    def put(self, name: str, document: Any) -> None:
        self.client.put_object(Bucket=self.containers.bucket, Key=self.root + name, Body=json.dumps(document).encode())

    def get(self, name: str) -> Any:
        try:
            return json.loads(self.client.get_object(Bucket=self.containers.bucket, Key=self.root + name)["Body"].read())
        except self.client.exceptions.NoSuchKey:
            return None

    @property
    def result(self) -> Any:
        return self.get("generations/3/result.json")

    def start(self, replica: str, script: str, endpoint: str | None = None) -> Container:
        return self.containers.start(script, replica=replica, gang=self.document, endpoint=endpoint)

    @property
    def chief_port(self) -> int:
        return int(self.document["addresses"]["chief"][0].rpartition(":")[2])  # type: ignore[index]


@pytest.fixture
def gang(containers: Containers) -> Gang:
    return Gang(containers)


def test_the_chiefs_good_end_is_the_generations_result(gang: Gang) -> None:
    assert gang.start("chief-0", GOOD_CHIEF).wait() == 0
    result = gang.result
    assert result.pop("ended")
    assert result == {"version": 1, "exit_code": 0, "reason": "Ok", "message": "", "checkpoint_step": 90, "loss": 0.5}


def test_a_chief_without_a_result_has_not_ended_well(gang: Gang) -> None:
    chief = gang.start("chief-0", "print('bye')")
    assert chief.wait() == 1
    assert gang.result["exit_code"] == 1
    assert "without result.json" in gang.result["message"]


def test_the_chiefs_error_is_the_generations_result(gang: Gang) -> None:
    chief = gang.start("chief-0", "import sys; print('error: model.build: digits_model/model.py:7: bad', file=sys.stderr); sys.exit(40)")
    assert chief.wait() == 40
    result = gang.result
    assert (result["exit_code"], result["reason"], result["checkpoint_step"]) == (40, "UserError", None)
    assert result["message"] == "model.build: digits_model/model.py:7: bad"
    assert chief.message() == "model.build: digits_model/model.py:7: bad"


def test_a_term_is_no_result(gang: Gang) -> None:
    chief = gang.start("chief-0", FOREVER)
    chief.until_printed(b"serving")
    chief.terminate()
    assert chief.wait() == 143
    assert gang.result is None


@pytest.mark.parametrize("replica", ["ps-0", "worker-1"])
def test_peers_end_when_the_generation_has_ended_well(gang: Gang, replica: str) -> None:
    peer = gang.start(replica, FOREVER)
    peer.until_printed(b"serving")
    gang.put("generations/3/result.json", {"version": 1, "exit_code": 0, "reason": "Ok", "message": ""})
    assert peer.wait(20) == 0


def test_peers_of_a_chief_that_ended_badly_say_that_it_is_gone(gang: Gang) -> None:
    peer = gang.start("ps-0", FOREVER)
    gang.put("generations/3/result.json", {"version": 1, "exit_code": 47, "reason": "Diverged", "message": "loss is nan"})
    assert peer.wait(20) == 43
    assert "Diverged: loss is nan" in peer.message()
    assert gang.get("generations/3/failed/ps-0.json") is None


@pytest.mark.parametrize("replica", ["chief-0", "ps-0", "worker-0"])
def test_a_replica_of_an_older_generation_ends_and_tells_nothing(gang: Gang, replica: str) -> None:
    old = gang.start(replica, FOREVER)
    old.until_printed(b"serving")
    gang.hold(4)
    assert old.wait(20) == 42
    assert gang.result is None
    assert gang.get(f"generations/3/failed/{replica}.json") is None


def test_a_chief_that_was_superseded_at_its_good_end_publishes_nothing(gang: Gang) -> None:
    gang.hold(4)
    assert gang.start("chief-0", GOOD_CHIEF).wait() == 42
    assert gang.result is None


def test_a_worker_that_failed_for_good_ends_the_gang(gang: Gang) -> None:
    chief = gang.start("chief-0", FOREVER)
    chief.until_printed(b"serving")
    worker = gang.start("worker-1", "import sys; print('error: s3://b/k is not what was recorded', file=sys.stderr); sys.exit(41)")
    assert worker.wait() == 41
    failure = gang.get("generations/3/failed/worker-1.json")
    assert failure.pop("ended")
    assert failure == {"exit_code": 41, "reason": "DataError", "message": "s3://b/k is not what was recorded"}
    assert chief.wait(20) == 46
    result = gang.result
    assert (result["exit_code"], result["reason"]) == (46, "PeerFailed")
    assert result["message"] == "worker-1: DataError: s3://b/k is not what was recorded"


@pytest.mark.parametrize("replica", ["ps-0", "worker-0"])
def test_a_peer_that_dies_is_started_again_in_place(gang: Gang, replica: str) -> None:
    peer = gang.start(replica, DIES_ONCE + "print('second life')")
    assert peer.wait() == 0
    assert (peer.folder / "lives").read_text() == "xx"
    assert b"starting it again in 1 s (1 of 3)\nsecond life" in peer.logs.text(replica)
    assert gang.get(f"generations/3/failed/{replica}.json") is None


def test_a_chief_that_dies_is_started_again_in_place(gang: Gang) -> None:
    chief = gang.start("chief-0", DIES_ONCE + GOOD_CHIEF)
    assert chief.wait() == 0
    assert (chief.folder / "lives").read_text() == "xx"
    assert gang.result["checkpoint_step"] == 90


def test_storage_trouble_is_worth_another_try(gang: Gang) -> None:
    worker = gang.start("worker-0", "import os, sys\nif os.path.exists('tried'): sys.exit(0)\nopen('tried', 'w')\nsys.exit(45)")
    assert worker.wait() == 0


def test_a_bug_is_not(gang: Gang) -> None:
    worker = gang.start("worker-0", "open('lives', 'a').write('x')\nraise RuntimeError('a bug')")
    assert worker.wait() == 1
    assert (worker.folder / "lives").read_text() == "x"
    assert gang.get("generations/3/failed/worker-0.json") is None


@pytest.mark.slow
def test_restarts_are_bounded(gang: Gang) -> None:
    chief = gang.start("chief-0", "import os\nopen('lives', 'a').write('x')\nos.kill(os.getpid(), 9)")
    assert chief.wait() == 137
    assert (chief.folder / "lives").read_text() == "xxxx"
    assert (gang.result["exit_code"], gang.result["reason"]) == (137, "Killed")


def test_a_term_while_waiting_for_a_restart_ends_at_once(gang: Gang) -> None:
    worker = gang.start("worker-0", "import os; os.kill(os.getpid(), 9)")
    worker.until_printed(b"in 4 s")
    worker.terminate()
    assert worker.wait(20) == 143


def test_a_peer_whose_chief_comes_back_serves_again(gang: Gang) -> None:
    ps = gang.start(
        "ps-0", "import os, sys\nif os.path.exists('gone'): print('serves again'); sys.exit(0)\nopen('gone', 'w')\nsys.exit(43)"
    )
    with socket.create_server(("127.0.0.1", gang.chief_port)):
        assert ps.wait() == 0
    assert b"serves again" in ps.logs.text("ps-0")


def test_a_peer_whose_chief_left_a_result_does_not_start_again(gang: Gang) -> None:
    gang.put("generations/3/result.json", {"version": 1, "exit_code": 0, "reason": "Ok", "message": ""})
    ps = gang.start("ps-0", "import sys\nopen('lives', 'a').write('x')\nsys.exit(43)")
    assert ps.wait() == 0
    assert (ps.folder / "lives").read_text() == "x"


def test_a_chief_that_is_replaced_after_its_end_ends_the_same_way(gang: Gang) -> None:
    gang.put("generations/3/result.json", {"version": 1, "exit_code": 0, "reason": "Ok", "message": "", "checkpoint_step": 90})
    chief = gang.start("chief-0", FOREVER)
    assert chief.wait(20) == 0
    assert gang.result["checkpoint_step"] == 90


def test_a_result_is_written_once(gang: Gang) -> None:
    """A chief behind a slow network that ended differently changes nothing: what was published first holds."""
    with cable(gang.containers.server.endpoint, whole=False) as away:
        chief = gang.start("chief-0", "import sys; print('error: too late'); sys.exit(47)", endpoint=away.endpoint)
        chief.until_printed(b"too late")
        gang.put("generations/3/result.json", {"version": 1, "exit_code": 0, "reason": "Ok", "message": ""})
        away.mend()
        assert chief.wait() == 0
    assert gang.result["exit_code"] == 0


def test_the_end_is_published_when_s3_comes_back(gang: Gang) -> None:
    with cable(gang.containers.server.endpoint, whole=False) as away:
        chief = gang.start("chief-0", GOOD_CHIEF, endpoint=away.endpoint)
        until(lambda: (chief.folder / "result.json").exists(), "the child's end")
        away.mend()
        assert chief.wait() == 0
    assert gang.result["checkpoint_step"] == 90
