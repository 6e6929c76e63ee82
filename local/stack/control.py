"""How another program asks the running starter for something: one JSON line over a Unix socket in the state folder (0700), answered by
events, one a line, the last being {"event": "done"} or {"event": "error", "message"}.

The socket is named relatively (a socket's path may not be longer than 107 bytes): the starter lives in `run/`, a client goes there.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from typing import Any

from local.stack.events import StackError
from local.stack.state import State

SOCKET = "control.sock"


class ControlServer:
    """The starter's end. The process must be in `run/` when this is made."""

    def __init__(self) -> None:
        if os.path.lexists(SOCKET):
            os.unlink(SOCKET)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(SOCKET)
        os.chmod(SOCKET, 0o600)
        self._socket.listen(4)
        self._socket.setblocking(False)

    def request(self) -> tuple[dict[str, Any], socket.socket] | None:
        """A waiting request and the connection to answer on, or None."""
        try:
            connection, _ = self._socket.accept()
        except BlockingIOError:
            return None
        connection.settimeout(5)
        try:
            with connection.makefile("rb") as lines:
                value = json.loads(lines.readline(65536))
            if not isinstance(value, dict):
                raise ValueError("not an object")
        except (OSError, ValueError):
            connection.close()
            return None
        return value, connection


def ask(state: State, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Sends a request to the starter of `state` and yields its events. Raises StackError when none runs or it says so."""
    here = os.getcwd()
    connection = socket.socket(socket.AF_UNIX)
    try:
        os.chdir(state.run)
        connection.connect(SOCKET)
    except OSError as error:
        connection.close()
        raise StackError(f"the platform is not up in {state.root} ({error.strerror}): start it with `trainyard up`") from error
    finally:
        os.chdir(here)
    with connection, connection.makefile("rwb") as lines:
        lines.write(json.dumps(request).encode() + b"\n")
        lines.flush()
        for line in lines:
            event = json.loads(line)
            if event["event"] == "error":
                raise StackError(event["message"])
            if event["event"] == "done":
                return
            yield event
    raise StackError(f"the starter ended before it answered: see {state.logs / 'starter.log'}")
