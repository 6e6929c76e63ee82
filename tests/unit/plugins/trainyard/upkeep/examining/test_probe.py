"""The program of a probe's pod, run as one: a process that gets it as text. Real sockets, and a real S3 server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fixtures.s3 import S3Server, free_ports
from trainyard.store import Store
from trainyard.upkeep.examining import probe
from trainyard.upkeep.examining.probes import script

QUICK = {"RESOLVE_S = 40.0": "RESOLVE_S = 0.1", "CONNECT_S = 40.0": "CONNECT_S = 0.1", "WALL_S = 45.0": "WALL_S = 2.5"}


def quick() -> str:
    """The script with short patience."""
    text = script()
    for long, short in QUICK.items():
        assert long in text
        text = text.replace(long, short)
    return text


class Run:
    """One probe, as its container would run it."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-I", "-c", quick(), *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={"PATH": os.environ["PATH"], **environment},
        )  # fmt: skip

    def line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        assert text, self.process.communicate(timeout=10)
        found: dict[str, Any] = json.loads(text)
        return found

    def end(self) -> list[dict[str, Any]]:
        out, err = self.process.communicate(timeout=30)
        assert self.process.returncode == 0, err
        return [json.loads(line) for line in out.splitlines()]


@pytest.fixture
def started() -> Iterator[list[Run]]:
    """Probes that the test has started: none outlives it."""
    runs: list[Run] = []
    yield runs
    for run in runs:
        run.process.kill()
        run.process.communicate(timeout=10)


def test_facts_are_its_clock_and_what_the_image_has() -> None:
    before = time.time()
    (facts,) = Run("facts", "json", "no_such_module").end()
    assert before - 1 < facts["now"] < time.time() + 1
    assert facts["modules"] == {"json": True, "no_such_module": False}
    assert facts["python"] == ".".join(map(str, sys.version_info[:3]))


def test_a_wall_that_comes_up_is_seen_and_one_that_does_not_is_not(started: list[Run]) -> None:
    (port,) = free_ports(1)
    started.append(server := Run("listen", str(port), str(port)))
    assert server.line() == {"step": "listening", "port": port}
    started.append(client := Run("reach", "localhost", "127.0.0.1", str(port)))
    resolved, reached = client.line(), client.line()
    assert (resolved["step"], "127.0.0.1" in resolved["addresses"], reached["step"]) == ("resolved", True, "reached")
    (last,) = client.end()
    assert (last["step"], last["seconds"] >= 2.5) == ("open", True)

    started.append(client := Run("reach", "localhost", "127.0.0.1", str(port)))
    assert [client.line()["step"], client.line()["step"]] == ["resolved", "reached"]
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(timeout=10) == 0
    (last,) = client.end()
    assert (last["step"], "refused" in last["error"]) == ("walled", True)


def test_a_name_that_does_not_resolve_does_not_hide_that_the_address_answers(started: list[Run]) -> None:
    (port,) = free_ports(1)
    started.append(server := Run("listen", str(port), str(port)))
    server.line()
    said = Run("reach", "no-such-name.invalid", "127.0.0.1", str(port)).end()
    assert [line["step"] for line in said] == ["unresolved", "reached", "open"]
    assert said[0]["error"]


def test_nobody_at_the_address() -> None:
    (port,) = free_ports(1)
    said = Run("reach", "localhost", "127.0.0.1", str(port)).end()
    assert (said[-1]["step"], "refused" in said[-1]["error"]) == ("unreached", True)


def test_it_listens_on_the_highest_port_that_is_free(started: list[Run]) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        last = taken.getsockname()[1]
        started.append(server := Run("listen", str(last - 20), str(last)))
        assert last - 20 <= server.line()["port"] < last
        (line,) = Run("listen", str(last), str(last)).end()
        assert line["step"] == "no_port"


def links(store: Store, key: str) -> dict[str, str]:
    return {"DOCTOR_PUT": store.presign(key, method="PUT"), "DOCTOR_GET": store.presign(key)}


def bucket(server: S3Server, name: str) -> Store:
    return Store(name, server.endpoint, server.region, server.access_key, server.secret_key)


class TestStore:
    def test_an_object_goes_there_and_comes_back_by_links_alone(self, s3_server: S3Server, s3_bucket: str) -> None:
        store = bucket(s3_server, s3_bucket)
        put, got = Run("store", **links(store, "doctor/x")).end()
        assert (put["status"], got["status"], got["same"]) == (200, 200, True)
        assert store.get("doctor/x") == probe.BODY

    def test_a_bucket_that_is_not_there_is_an_answer(self, s3_server: S3Server) -> None:
        (put,) = Run("store", **links(bucket(s3_server, "no-such-bucket-here"), "doctor/x")).end()
        assert (put["step"], put["status"]) == ("put", 404)
        assert "NoSuchBucket" in put["body"]

    def test_nobody_at_the_address_is_an_error(self) -> None:
        (port,) = free_ports(1)
        store = Store("a-bucket", f"http://127.0.0.1:{port}", "us-east-1", "a", "b")
        (put,) = Run("store", **links(store, "doctor/x")).end()
        assert (put["certificate"], "refused" in put["error"]) == (False, True)
