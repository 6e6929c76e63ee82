"""`kubectl logs`, by the API: follow, tail, since, timestamps, limits, and what is refused."""

from __future__ import annotations

import datetime
import re
import threading
import time

import pytest
from kubernetes.client.exceptions import ApiException

from tests.cluster.support import Namespace, ended, python, ready, running, script

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z"


@pytest.fixture(scope="module")
def talker(namespace: Namespace) -> str:
    """A pod that has printed ten lines and ended."""
    name = namespace.create(namespace.container(script("for i in 0 1 2 3 4 5 6 7 8 9; do echo line $i; done; echo oops >&2")))
    namespace.wait_for(name, ended)
    return name


def test_the_whole_log_with_both_streams(namespace: Namespace, talker: str) -> None:
    lines = namespace.logs(talker).splitlines()
    assert [line for line in lines if line.startswith("line")] == [f"line {index}" for index in range(10)]
    assert "oops" in lines


def test_tail(namespace: Namespace) -> None:
    # It stays for a moment: containerd 1.6 was seen to lose the end of what a container printed just before its own.
    name = namespace.create(namespace.container(script("seq 1 100000; sleep 3")))
    namespace.wait_for(name, ended)
    assert namespace.logs(name, tail_lines=3) == "99998\n99999\n100000\n"
    assert namespace.logs(name, tail_lines=0) == ""
    assert len(namespace.logs(name, tail_lines=54321).splitlines()) == 54321
    assert len(namespace.logs(name).splitlines()) == 100000


def test_limit_bytes(namespace: Namespace, talker: str) -> None:
    # The streams are two, and which is read first is a matter of the runtime.
    assert namespace.logs(talker, limit_bytes=9) == namespace.logs(talker)[:9]


def test_timestamps(namespace: Namespace, talker: str) -> None:
    lines = namespace.logs(talker, timestamps=True).splitlines()
    assert len(lines) == 11
    for line in lines:
        assert re.match(rf"^{TIME} (line \d|oops)$", line), line


def test_since(namespace: Namespace) -> None:
    name = namespace.create(namespace.container(script("echo early; sleep 3; echo late; sleep 60")))
    namespace.wait_for(name, lambda pod: running(pod) and "late" in namespace.logs(name))
    stamped = namespace.logs(name, timestamps=True).splitlines()
    early, late = (datetime.datetime.fromisoformat(line.split(" ")[0]) for line in stamped)
    middle = (early + (late - early) / 2).isoformat()
    answer = namespace.kubectl(
        "get", "--raw", f"/api/v1/namespaces/{namespace.name}/pods/{name}/log?sinceTime={middle.replace('+00:00', 'Z')}"
    )
    assert answer.stdout == "late\n"
    assert namespace.logs(name, since_seconds=3600) == "early\nlate\n"
    age = (datetime.datetime.now(datetime.UTC) - late).total_seconds()
    assert namespace.logs(name, since_seconds=int(age) + 2) == "late\n"


def test_follow_shows_lines_as_they_come_and_ends_with_the_container(namespace: Namespace) -> None:
    name = namespace.create(namespace.container(script("for i in 1 2 3 4; do echo tick $i; sleep 0.7; done; echo end")))
    namespace.wait_for(name, running)
    response = namespace.core.read_namespaced_pod_log(name, namespace.name, follow=True, _preload_content=False)
    seen, times = b"", []
    for chunk in response.stream(64):
        seen += chunk
        times.append(time.monotonic())
    assert seen.decode().splitlines() == ["tick 1", "tick 2", "tick 3", "tick 4", "end"]
    assert times[-1] - times[0] > 1.5, "the lines came one after the other, not all at the end"
    namespace.wait_for(name, ended)


def test_follow_with_tail_and_several_followers(namespace: Namespace) -> None:
    name = namespace.create(namespace.container(script("for i in $(seq 1 50); do echo $i; done; sleep 2; echo end")))
    namespace.wait_for(name, lambda pod: running(pod) and "50" in namespace.logs(name))
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(namespace.logs(name, follow=True, tail_lines=1))) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == ["50\nend\n"] * 5


def test_long_lines_and_a_last_line_without_an_end(namespace: Namespace) -> None:
    name = namespace.create(namespace.container(python("import sys; print('x' * 100_000); sys.stdout.write('no newline')")))
    namespace.wait_for(name, ended)
    assert namespace.logs(name) in ("x" * 100_000 + "\nno newline", "x" * 100_000 + "\nno newline\n")


def test_bytes_that_are_no_text(namespace: Namespace) -> None:
    """They come through, but for a carriage return before a newline: container runtimes read lines so."""
    name = namespace.create(namespace.container(python("import sys; sys.stdout.buffer.write(bytes([0, 255, 13, 65, 10, 13, 10]))")))
    namespace.wait_for(name, ended)
    raw = namespace.core.read_namespaced_pod_log(name, namespace.name, _preload_content=False).data
    assert raw == bytes([0, 255, 13, 65, 10, 10])


def test_what_is_refused(namespace: Namespace, talker: str) -> None:
    with pytest.raises(ApiException) as refused:
        namespace.logs(talker, previous=True)
    assert refused.value.status == 400
    with pytest.raises(ApiException) as refused:
        namespace.logs(talker, "no-such-container")
    assert refused.value.status in (400, 404)
    waiting = namespace.create({"name": "main", "image": namespace.profile.absent_image, "command": ["x"]})
    namespace.wait_for(waiting, lambda pod: pod["status"].get("containerStatuses"))
    with pytest.raises(ApiException) as refused:
        namespace.logs(waiting)
    assert refused.value.status == 400


def test_the_log_stays_as_long_as_the_pod(namespace: Namespace) -> None:
    name = namespace.create(namespace.container(script("echo kept")))
    namespace.wait_for(name, ended)
    assert namespace.logs(name) == "kept\n"
    namespace.core.delete_namespaced_pod(name, namespace.name)
    namespace.wait_gone(name)
    again = namespace.create(namespace.container(script("echo mine; sleep 30")), metadata={"name": name})
    namespace.wait_for(again, ready)
    namespace.wait_for(again, lambda _: namespace.logs(again) == "mine\n")
