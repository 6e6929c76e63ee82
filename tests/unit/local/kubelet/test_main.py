"""The program itself: what it says to bad input, and that one folder belongs to one kubelet."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml

from local.kubelet import __main__ as program
from local.kubelet.__main__ import VERSION, UsageError, keep_doing, lock, parse
from local.kubelet.processes import CHECKOUT


def kubeconfig(folder: Path, port: int = 1) -> Path:
    """A kubeconfig whose server is not there."""
    file = folder / "kubeconfig"
    cluster, user = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}, {"token": "t"}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    document = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [context],
        "current-context": "c",
    }
    file.write_text(yaml.safe_dump(document))
    return file


def kubelet(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    return subprocess.run(
        [sys.executable, "-m", "local.kubelet", *arguments], capture_output=True, text=True, env=environment, timeout=60, check=False
    )


def test_the_version_is_that_of_the_control_plane() -> None:
    assert f"k8s.io/kubernetes {VERSION}" in (CHECKOUT / "local" / "kube" / "go.mod").read_text()


def test_defaults() -> None:
    found = parse(["--kubeconfig", "f", "--root", "d"])
    assert (found.node, found.pods, found.cpu, found.memory, found.client_ca) == ("local", 200, None, None, None)
    assert found.images == CHECKOUT / "local" / "images.yaml"


def test_one_folder_belongs_to_one_kubelet(tmp_path: Path) -> None:
    held = lock(tmp_path / "root")
    assert (tmp_path / "root").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "root" / "lock").read_text() == str(os.getpid())
    with pytest.raises(UsageError, match=rf"pid {os.getpid()} uses it"):
        lock(tmp_path / "root")
    held.close()
    lock(tmp_path / "root").close()


def test_a_thread_that_fails_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "RESTART_S", 0.01)
    stop, calls = threading.Event(), []

    def target(until: threading.Event) -> None:
        calls.append(1)
        if len(calls) < 3:
            raise RuntimeError("not foreseen")
        until.wait(30)

    keep_doing(target, "test", stop)
    deadline = time.monotonic() + 10
    while len(calls) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    stop.set()


@pytest.mark.slow
@pytest.mark.parametrize("case", ["images", "kubeconfig", "root", "busy", "port"])
def test_bad_input_is_one_line_with_the_way_out(tmp_path: Path, case: str) -> None:
    arguments = {"--kubeconfig": str(kubeconfig(tmp_path)), "--root": str(tmp_path / "root"), "--port": "0"}
    words = ""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        match case:
            case "images":
                arguments["--images"], words = str(tmp_path / "none.yaml"), "none.yaml: cannot be read"
            case "kubeconfig":
                arguments["--kubeconfig"], words = str(tmp_path / "none"), f"--kubeconfig {tmp_path}/none: "
            case "root":
                arguments["--root"], words = "/dev/null/x", "give a folder this user can write"
            case "busy":
                (tmp_path / "root").mkdir()
                held = (tmp_path / "root" / "lock").open("w")
                fcntl.flock(held, fcntl.LOCK_EX)
                words = "uses it: stop that one, or give another folder"
            case "port":
                arguments["--port"] = str(taken.getsockname()[1])
                words = "the port is taken: give another"
        done = kubelet(*(text for pair in arguments.items() for text in pair))
    assert done.returncode == 2, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("kubelet: ")
    assert words in last
    assert "Traceback" not in done.stderr
