"""Ports: the block, the overrides, and the one line about a port that is taken."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from local.stack import ports
from local.stack.events import StackError


def test_the_block_starts_with_airflow_and_has_no_duplicates() -> None:
    found = ports.plan(20000)
    assert found["airflow"] == 20000
    assert sorted(found.values()) == list(range(20000, 20000 + len(ports.NAMES)))


def test_the_default_block_is_below_ephemeral_ports_and_beside_the_gangs() -> None:
    assert max(ports.plan().values()) < 20000


def test_one_port_is_overridden() -> None:
    assert ports.plan(20000, {"s3": 9000})["s3"] == 9000


@pytest.mark.parametrize(
    ("base", "overrides", "says"),
    [
        (20000, {"s4": 9000}, "no port named 's4'"),
        (20000, {"s3": 20000}, "given to both airflow and s3"),
        (80, {}, "not between 1024 and 65535"),
        (65530, {}, "not between 1024 and 65535"),
    ],
)
def test_wrong_plans_are_refused_with_the_way_out(base: int, overrides: dict[str, int], says: str) -> None:
    with pytest.raises(StackError, match=says) as error:
        ports.plan(base, overrides)
    assert "--port" in str(error.value)


@pytest.mark.parametrize("text", ["airflow", "airflow=", "airflow=x", "=1"])
def test_an_override_that_is_none(text: str) -> None:
    with pytest.raises(StackError, match=r"NAME=NUMBER|no port named"):
        ports.plan(20000, dict([ports.parse_override(text)]))


def test_a_taken_port_is_named_with_its_owner_and_the_option() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        with pytest.raises(StackError) as error:
            ports.check_free({"s3": port})
    message = str(error.value)
    assert f"port {port} (for s3) is taken by pid {os.getpid()}" in message
    assert "--port s3=N" in message
    assert "\n" not in message


def test_a_port_that_was_just_given_up_is_free() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    ports.check_free({"s3": port})


@pytest.mark.parametrize(("base", "said"), [(19000, None), (32767, "12 of the ports (32768 … 32779) lie"), (40000, "13 of the ports")])
def test_ports_that_the_kernel_gives_to_clients_are_noted(tmp_path: Path, base: int, said: str | None) -> None:
    (tmp_path / "range").write_text("32768\t60999\n")
    found = ports.ephemeral_overlap(ports.plan(base), tmp_path / "range")
    assert (said is None and found is None) or (said is not None and found is not None and said in found and "below 32768" in found)
    assert "\n" not in (found or "")


def test_an_unknown_range_is_no_reason_to_warn(tmp_path: Path) -> None:
    assert ports.ephemeral_overlap(ports.plan(40000), tmp_path / "absent") is None
