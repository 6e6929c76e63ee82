"""Asks local/kube/build.py, a program, for every binary of the cluster that is not Debian's, and passes on how far its compiling is."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from local.stack.events import Reporter, StackError
from local.toolchain import CHECKOUT, shimmed

NAMES = ("kube", "node", "pause", "flannel", "coredns", "kube-router")


def ensure(reporter: Reporter) -> dict[str, Path]:
    """Name -> binary. Raises StackError (the builder's one line), KeyboardInterrupt on TERM and INT: the compilers end with us."""
    found: dict[str, Path] = {}
    last: dict[str, Any] = {}

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        with tempfile.TemporaryDirectory(prefix="trainyard-") as scratch, reporter.phase("programs", ", ".join(NAMES)):
            command = shimmed(
                [sys.executable, str(CHECKOUT / "local" / "kube" / "build.py"), "--json", *NAMES], "kube-build", Path(scratch)
            )
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert process.stdout is not None
            assert process.stderr is not None
            try:
                for line in process.stdout:
                    last = json.loads(line)
                    if last["event"] == "progress":
                        reporter.progress("programs", last["done"], last["total"], last["detail"])
                    elif last["event"] == "note":
                        reporter.note(last["message"])
                    elif last["event"] == "binary":
                        found[last["program"]] = Path(last["path"])
            finally:
                if process.poll() is None and sys.exc_info()[0] is not None:
                    process.terminate()
                process.wait()
            if process.returncode != 0:
                said = process.stderr.read().strip().splitlines()
                raise StackError(last.get("message") or (said[-1] if said else f"the build failed with exit code {process.returncode}"))
    finally:
        signal.signal(signal.SIGTERM, before)
    return found
