"""Whether the other replicas are there, asked by TCP with deadlines of our own. No TensorFlow.

ParameterServerStrategy waits for ever for a replica that does not come, and says nothing (measured): so the chief asks first. A PS or
worker asks for its chief all the time: nothing else tells it that the chief is gone.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping

from trainer.errors import PeersMissingError


def answers(address: str, timeout: float = 1.0) -> bool:
    """Whether something listens at ``host:port``."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout).close()
    except OSError:
        return False
    return True


def wait_for(peers: Mapping[str, str], deadline: float, say: Callable[[str], None], every: float = 0.25) -> None:
    """Returns once every peer (name -> address) answered. ``deadline`` is a time of ``time.monotonic``.

    Raises:
        PeersMissingError: the deadline passed; names who is missing, with their addresses.
    """
    missing, told = dict(peers), time.monotonic()
    while True:
        missing = {name: address for name, address in missing.items() if not answers(address)}
        if not missing:
            return
        now = time.monotonic()
        names = ", ".join(f"{name} ({address})" for name, address in missing.items())
        if now > deadline:
            raise PeersMissingError(f"{len(missing)} of {len(peers)} replicas did not answer in time: {names}")
        if now - told > 5:
            say(f"waiting for {names}, {deadline - now:.0f} s left")
            told = now
        time.sleep(every)


class Presence:
    """Listens on the chief's own port until TensorFlow's server takes it over, so that peers see a chief that is still importing.

    A chief restarted in place needs longer to import TensorFlow than its peers wait for a chief that is gone: without this they would
    all end although the chief is back.
    """

    def __init__(self, address: str) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("", int(address.rpartition(":")[2])))
        # A full backlog would make a present chief look absent for a second, on a machine too busy to run the thread.
        self._socket.listen(socket.SOMAXCONN)
        self._thread = threading.Thread(target=self._serve, name="presence", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed by us
                return
            with connection, contextlib.suppress(OSError):
                # A poll closes at once, and its end is awaited: whoever closes first keeps the dead connection. One that stays is reset.
                connection.settimeout(0.5)
                connection.recv(1)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def close(self) -> None:
        """Gives the port up. To be called just before the strategy is made."""
        # shutdown wakes the accept in the thread; close alone does not.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(2)
