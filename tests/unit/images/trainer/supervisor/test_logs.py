"""What a container writes is in S3: all of it, in order, while it is written, whatever ends the writer."""

from __future__ import annotations

import pytest

from tests.fixtures.cable import cable
from tests.unit.images.trainer.supervisor.conftest import Containers, until


def test_everything_both_streams_wrote_is_in_s3_and_on_stdout_in_order(containers: Containers) -> None:
    container = containers.start(
        "import os, sys\n"
        "for i in range(200):\n"
        "    print('out', i)\n"
        "    os.write(2, b'as C++ writes %d\\n' % i)\n"
        "    sys.stderr.write(f'err {i}\\n')\n"
    )
    assert container.wait() == 0
    expected = b"".join(b"out %d\nas C++ writes %d\nerr %d\n" % (i, i, i) for i in range(200))
    assert container.logs.text("prepare") == expected
    assert container.printed() == expected
    assert container.logs.end("prepare") == {
        "exit_code": 0,
        "bytes": len(expected),
        "chunks": len(container.logs.chunks("prepare")),
        "lost": 0,
    }


def test_the_log_folder_is_named_by_time_and_pod(containers: Containers) -> None:
    assert containers.start("print('x')", replica="shard-3").wait() == 0
    (key,) = (key for key in containers.logs.keys("shard-3") if key.endswith(".log"))
    folder = key.split("/")[-2]
    started, _, pod = folder.partition("-")
    assert pod == "pod-0"
    assert len(started) == len("20260101T000000Z")
    assert key.endswith("/00000000.log")


def test_a_line_is_in_s3_while_the_command_still_runs(containers: Containers) -> None:
    container = containers.start("import time; print('first line'); time.sleep(600)")
    until(lambda: container.logs.text("prepare") == b"first line\n", "the line in S3", 20)
    assert container.process.poll() is None
    assert container.logs.end("prepare") is None


def test_nothing_is_lost_when_the_command_is_killed_after_printing(containers: Containers) -> None:
    container = containers.start(
        "import os, signal, sys, time\n"
        "for i in range(1000): print('line', i)\n"
        "time.sleep(1)\n"
        "print('last words', end='')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert container.wait() == 137
    assert container.logs.text("prepare") == b"".join(b"line %d\n" % i for i in range(1000)) + b"last words"
    end = container.logs.end("prepare")
    assert end is not None
    assert end["exit_code"] == 137


@pytest.mark.slow
def test_fifty_megabytes_and_a_sigkill_lose_nothing(containers: Containers) -> None:
    container = containers.start(
        "import os, signal\n"
        "block = b''.join(b'%099d\\n' % i for i in range(10000))\n"
        "out = os.fdopen(1, 'wb')\n"
        "for i in range(50): out.write(block)\n"
        "out.flush()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert container.wait(120) == 137
    expected = b"".join(b"%099d\n" % i for i in range(10000)) * 50
    chunks = container.logs.chunks("prepare")
    assert b"".join(chunks) == expected
    assert max(len(chunk) for chunk in chunks) <= 1024 * 1024
    assert container.printed() == expected
    assert container.logs.end("prepare") == {"exit_code": 137, "bytes": len(expected), "chunks": len(chunks), "lost": 0}


def test_s3_away_for_a_while_loses_nothing(containers: Containers) -> None:
    with cable(containers.server.endpoint, whole=False) as away:
        # More than fits in memory, so part of it lies on disk while S3 is away.
        container = containers.start(
            "import os, sys, time\nblock = b''.join(b'%099d\\n' % i for i in range(10000))\n"
            "for i in range(12): sys.stdout.buffer.write(block)\nsys.stdout.flush()\nprint('done'); time.sleep(3)",
            endpoint=away.endpoint,
        )
        spool = container.folder / ".supervisor"
        until(lambda: spool.is_dir() and any(spool.iterdir()), "the spool on disk")
        container.until_printed(b"[supervisor] the log waits here until S3 takes it")
        away.mend()
        assert container.wait() == 0
    text = container.logs.text("prepare")
    ours = b"".join(line for line in text.splitlines(keepends=True) if b"[supervisor]" not in line)
    assert ours == b"".join(b"%099d\n" % i for i in range(10000)) * 12 + b"done\n"
    assert b"[supervisor] S3 takes the log again" in text
    assert list(spool.iterdir()) == []


def test_s3_away_for_good_bounds_the_end_after_a_term(containers: Containers) -> None:
    with cable(containers.server.endpoint, whole=False) as away:
        container = containers.start("import time; print('hello'); time.sleep(600)", endpoint=away.endpoint)
        container.until_printed(b"hello")
        container.terminate()
        # A pod's grace is ten seconds, after which the kubelet kills; this is generous for a busy machine.
        assert container.wait(25) == 143
    assert container.logs.keys("prepare") == []


def test_a_command_that_closes_its_streams_goes_on(containers: Containers) -> None:
    container = containers.start("import os, time\nprint('x')\nos.close(1); os.close(2)\ntime.sleep(0.5)\nopen('done', 'w')")
    assert container.wait() == 0
    assert (container.folder / "done").exists()


def test_a_container_whose_stdout_nobody_reads_any_more_goes_on(containers: Containers) -> None:
    # A kubelet that was restarted took the reader with it: the log in S3 is the log.
    container = containers.start("import time; time.sleep(1); print('still here')", closed_stdout=True)
    assert container.wait() == 0
    assert container.logs.text("prepare") == b"still here\n"
