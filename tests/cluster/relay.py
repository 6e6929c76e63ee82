"""A way for pods to a server on this machine's loopback: a port on an address that they can reach."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _serve(listener: socket.socket, port: int) -> None:
    while True:
        try:
            near, _ = listener.accept()
        except OSError:  # closed: the test is over
            return
        try:
            far = socket.create_connection(("127.0.0.1", port), timeout=10)
        except OSError:
            near.close()
            continue
        far.settimeout(None)
        for pair in ((near, far), (far, near)):
            threading.Thread(target=_pump, args=pair, daemon=True).start()


@contextlib.contextmanager
def relayed(host: str, port: int) -> Iterator[int]:
    """Opens a port on ``host`` that leads to ``port`` on loopback; yields its number."""
    listener = socket.create_server((host, 0))
    threading.Thread(target=_serve, args=(listener, port), daemon=True).start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        listener.close()
