"""Requests to the running starter over its socket."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.stack.control import ControlServer, ask
from local.stack.events import StackError
from local.stack.state import State


@pytest.fixture
def state(tmp_path: Path) -> State:
    # Longer than a socket's path may be: the reason why it is named relatively.
    return State.at(tmp_path / ("long" * 30))


@pytest.fixture
def server(state: State) -> Iterator[ControlServer]:
    here = os.getcwd()
    os.chdir(state.run)
    try:
        yield ControlServer()
    finally:
        os.chdir(here)


def answer_with(server: ControlServer, text: str) -> threading.Thread:
    def serve() -> None:
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            if asked := server.request():
                with asked[1] as connection:
                    connection.sendall(text.replace("REQUEST", str(asked[0]["what"])).encode())
                return
            time.sleep(0.01)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_events_until_done(state: State, server: ControlServer) -> None:
    thread = answer_with(server, '{"event": "note", "message": "REQUEST"}\n{"event": "done"}\n')
    assert list(ask(state, {"do": "restart", "what": "airflow"})) == [{"event": "note", "message": "airflow"}]
    thread.join()


def test_an_error_is_raised(state: State, server: ControlServer) -> None:
    thread = answer_with(server, '{"event": "error", "message": "no such component"}\n')
    with pytest.raises(StackError, match="no such component"):
        list(ask(state, {"do": "restart", "what": "x"}))
    thread.join()


def test_a_starter_that_dies_before_the_answer_is_said(state: State, server: ControlServer) -> None:
    thread = answer_with(server, "")
    with pytest.raises(StackError, match=r"ended before it answered: see .*starter\.log"):
        list(ask(state, {"do": "restart", "what": "x"}))
    thread.join()


def test_nobody_there(state: State) -> None:
    with pytest.raises(StackError, match=r"not up .*trainyard up"):
        list(ask(state, {"do": "restart", "what": "x"}))


def test_the_socket_is_the_users_alone_and_a_stale_one_is_replaced(state: State, server: ControlServer) -> None:
    assert (state.run / "control.sock").stat().st_mode & 0o777 == 0o600
    ControlServer()
    assert server.request() is None
