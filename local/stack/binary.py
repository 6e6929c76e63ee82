"""Asks local/kube/build.py, a program, for the Kubernetes binary, and passes on how far its compiling is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from local.stack import shim
from local.stack.events import Reporter, StackError
from local.stack.state import CHECKOUT, State

PHASE = "Kubernetes binary"


def kube_binary(state: State, environment: Mapping[str, str], reporter: Reporter, stopping: Callable[[], bool]) -> Path:
    """The binary, compiled where it is not cached. Raises StackError (the builder's one line), InterruptedError (`stopping` said so)."""
    log = state.logs / "kube-build.log"
    words = [sys.executable, "-I", "-S", shim.__file__, "--name", "kube-build", "--record", str(state.run / "kube-build.process.json")]
    words += ["--log", "-", "--grace", "5", "--parent", str(os.getpid()), "--"]
    words += [sys.executable, str(CHECKOUT / "local" / "kube" / "build.py"), "--json"]
    env = {**environment, **{name: value for name, value in os.environ.items() if name in ("TRAINYARD_KUBE", "TRAINYARD_CACHE")}}
    with open(log, "ab") as errors:
        process = subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, start_new_session=True)
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    last: dict[str, Any] = {}
    pending = b""
    try:
        while True:
            if stopping():
                raise InterruptedError
            chunk = process.stdout.read()
            if chunk:
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    last = json.loads(line)
                    if last["event"] == "progress":
                        reporter.progress(PHASE, last["done"], last["total"], last["detail"])
                    elif last["event"] == "note":
                        reporter.note(last["message"])
            elif chunk == b"" and process.poll() is not None:
                break
            else:
                time.sleep(0.05)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait()
        process.stdout.close()
    if last.get("event") == "binary":
        return Path(last["path"])
    raise StackError(last.get("message") or f"building Kubernetes failed: see {log}")
