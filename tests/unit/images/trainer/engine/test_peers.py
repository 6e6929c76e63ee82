"""Waiting for peers, and being seen while importing."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from tests.fixtures.s3 import free_ports
from trainer.engine import server
from trainer.engine.peers import Presence, answers, wait_for
from trainer.errors import ChiefGoneError, PeersMissingError


@pytest.fixture
def listening() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as one:
        yield f"127.0.0.1:{one.getsockname()[1]}"


def test_returns_when_all_answer(listening: str) -> None:
    wait_for({"worker-0": listening}, time.monotonic() + 10, lambda line: None)


def test_the_missing_are_named_with_their_addresses(listening: str) -> None:
    away = f"127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(PeersMissingError, match=rf"1 of 2 replicas did not answer in time: worker-1 \({away}\)$"):
        wait_for({"worker-0": listening, "worker-1": away}, time.monotonic() + 0.5, lambda line: None)


def test_a_host_that_no_name_server_knows_is_missing_too() -> None:
    with pytest.raises(PeersMissingError, match="ps-0"):
        wait_for({"ps-0": "no-such-host.invalid:2222"}, time.monotonic() + 0.1, lambda line: None)


def test_presence_answers_any_number_of_polls_and_frees_the_port() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    presence = Presence(address)
    assert all(answers(address) for _ in range(300))
    presence.close()
    assert not answers(address)
    # At once, as TensorFlow's server will, and though hundreds of connections were just closed.
    again = Presence(address)
    assert answers(address)
    again.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.chdir(tmp_path)  # type: ignore[arg-type]
    monkeypatch.setattr(server, "GRACE_S", 0.5)
    monkeypatch.setattr(server, "POLL_S", 0.05)


@pytest.mark.usefixtures("quick")
class TestWatch:
    def test_ends_well_when_done_is_written(self, listening: str) -> None:
        server.DONE.write_text("Succeeded")
        server._watch(listening, 60)

    def test_a_chief_that_was_there_and_is_gone(self) -> None:
        address = f"127.0.0.1:{free_ports(1)[0]}"
        presence = Presence(address)
        import threading

        threading.Timer(0.4, presence.close).start()
        with pytest.raises(ChiefGoneError, match="has been away"):
            server._watch(address, 60)

    def test_a_chief_restarted_within_the_grace_is_no_reason_to_end(self) -> None:
        address = f"127.0.0.1:{free_ports(1)[0]}"
        first = Presence(address)
        import threading

        def restart() -> None:
            first.close()
            time.sleep(0.2)
            second = Presence(address)
            time.sleep(1.0)  # longer than the grace, so that a wrong clock would have ended it
            server.DONE.write_text("Succeeded")
            second.close()

        thread = threading.Timer(0.3, restart)
        thread.start()
        server._watch(address, 60)
        thread.join()

    def test_a_chief_that_never_comes(self) -> None:
        with pytest.raises(PeersMissingError, match="did not come within 0 s"):
            server._watch(f"127.0.0.1:{free_ports(1)[0]}", 0.3)
