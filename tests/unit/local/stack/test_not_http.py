"""Who asks whether a server is ready meets one that does not speak HTTP: it is not ready, and nothing else happens.

That is what a client sees that has connected to itself, which TCP allows where the port is one that the kernel gives to clients.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.demo import Demo, DemoError
from local.stack import ports
from local.stack.airflow import Airflow
from local.stack.s3 import S3
from local.stack.state import State


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that answers with what it is sent."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(connection.recv(4096))

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_airflow_is_not_well(echo: int, tmp_path: Path) -> None:
    airflow = Airflow(State.at(tmp_path), {**ports.plan(20000), "airflow": echo})
    assert airflow.health() == {}
    assert not airflow.healthy("scheduler")


def test_s3_is_not_ready(echo: int, tmp_path: Path) -> None:
    assert not S3(State.at(tmp_path), {**ports.plan(20000), "s3": echo}, Path("/weed")).ready()


def test_the_master_of_s3_is_not_ready(echo: int, tmp_path: Path) -> None:
    assert not S3(State.at(tmp_path), {**ports.plan(20000), "s3_master": echo}, Path("/weed"))._master_has("/cluster/status", "IsLeader")


def test_no_token_is_one_line(echo: int, tmp_path: Path) -> None:
    demo = Demo(State.at(tmp_path), "mnist-cnn", [], [])
    (tmp_path / "passwords").write_text('{"admin": "x"}')
    demo.document = {"airflow": {"url": f"http://127.0.0.1:{echo}", "admin_user": "admin", "passwords_file": str(tmp_path / "passwords")}}
    with pytest.raises(DemoError, match="gives no token to admin"):
        demo._log_in()
