"""Gives the paths of Kubernetes' binaries, compiling what this machine has not compiled yet (minutes, once).

    python local/kube/build.py [--json] [PROGRAM…]    a line for each is its path (--json: {"event": "binary", "program", "path"})

- `kube` (the control plane, and what is built without a name) is all that the embedded cluster needs; the three-node cluster takes every
  PROGRAM. Those of Kubernetes itself are one Go module; flannel, CoreDNS and kube-router are bound to other releases of Kubernetes'
  libraries, so each is a module of its own, below this folder. All share Go's build cache.
- TRAINYARD_KUBE=path (TRAINYARD_NODE, TRAINYARD_KUBE_ROUTER, …) names a ready binary: that one is not built.
- The cache is keyed by go.mod, go.sum, main.go and the flags: ${TRAINYARD_CACHE:-~/.cache/trainyard}/kube/<key>/PROGRAM.
- Two builds at once: the second waits for the first and takes its result. A killed build leaves nothing half-made: the binary appears
  by a rename, and Go's children die with it (they run under the stack's shim).

Standard library only: it runs beside the making of the environment.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from local.toolchain import ToolError, cache_folder, ensure_go, explain, locked, shimmed

SOURCE = Path(__file__).resolve().parent
VERSION = "v1.34.4"  # of k8s.io/kubernetes in go.mod: `go build` of a module cannot stamp it by itself
STAMP = "k8s.io/component-base/version"
FLAGS = ["-trimpath", "-ldflags", f"-s -w -X {STAMP}.gitVersion={VERSION} -X {STAMP}.gitMajor=1 -X {STAMP}.gitMinor=34"]
CACHED = "not installed but available in build cache"  # go list's word for a package that need not be compiled again

PLAIN = ["-trimpath", "-ldflags", "-s -w"]

Event = Callable[[str, dict[str, Any]], None]


@dataclass(frozen=True)
class Program:
    """One binary. Paths are relative to this folder, the package to its module."""

    name: str
    module: str = "."
    package: str = "."
    main: str | None = "main.go"
    """Our source, relative to the module; None where the package is another module's."""
    flags: tuple[str, ...] = tuple(PLAIN)

    @property
    def override(self) -> str:
        """The variable that names a ready binary."""
        return "TRAINYARD_" + self.name.upper().replace("-", "_")


KUBE = Program("kube", flags=tuple(FLAGS))
PROGRAMS = {
    program.name: program
    for program in (
        KUBE,
        Program("node", package="./node", main="node/main.go", flags=tuple(FLAGS)),
        Program("pause", package="./pause", main="pause/main.go"),
        Program("flannel", module="flannel"),
        Program("coredns", module="coredns"),
        Program("kube-router", module="kube-router", package="github.com/cloudnativelabs/kube-router/v2/cmd/kube-router", main=None),
    )
}


def key(source: Path = SOURCE, program: Program = KUBE) -> str:
    """What the binary depends on, as 16 hex digits."""
    digest = hashlib.sha256()
    for name in filter(None, ("go.mod", "go.sum", program.main)):
        digest.update((source / program.module / name).read_bytes() + b"\0")
    digest.update("\0".join(program.flags).encode())
    if program.main is None:
        digest.update(program.package.encode())
    return digest.hexdigest()[:16]


def go_environment() -> dict[str, str]:
    """No C compiler, no tool chain fetched behind one's back, none of the user's flags that would change the result."""
    kept = {name: value for name, value in os.environ.items() if name not in ("GOFLAGS", "GOWORK", "GOOS", "GOARCH", "GOROOT")}
    return {**kept, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}


def ensure(event: Event, source: Path = SOURCE, program: Program = KUBE) -> Path:
    """The binary. Raises ToolError (one line with the way out)."""
    given = os.environ.get(program.override)
    if given:
        path = Path(given).absolute()
        if not (path.is_file() and os.access(path, os.X_OK)):
            raise ToolError(
                f"{program.override}={given} is no executable file: "
                "give the path of a binary built from local/kube, or unset it to build one"
            )
        return path
    folder = cache_folder() / "kube" / key(source, program)
    binary = folder / program.name
    if binary.exists():
        return binary

    def note(message: str) -> None:
        event("note", {"message": message})

    what = "Kubernetes" if program is KUBE else program.name
    with locked(cache_folder() / "kube" / f"{folder.name}.lock", note, f"compiling {what}"):
        if binary.exists():
            return binary
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob("making-*"):  # of a build that was killed: we hold the lock, so nobody uses it
            shutil.rmtree(stale, ignore_errors=True)
        making = folder / f"making-{os.getpid()}"
        making.mkdir()
        try:
            module = source / program.module
            compile_into(making / program.name, module, program, ensure_go(module / "go.mod", note), event)
            (making / program.name).replace(binary)
        finally:
            shutil.rmtree(making, ignore_errors=True)
    return binary


def compile_into(target: Path, module: Path, program: Program, go: str, event: Event) -> None:
    """Downloads the modules, counts what must be compiled, compiles it; tells how far it is."""
    sums = module / "go.sum"
    modules = sum(1 for line in sums.read_text(encoding="utf-8").splitlines() if "/go.mod " not in line)
    fetched = 0

    def downloading(line: str) -> bool:
        nonlocal fetched
        if not line.startswith("go: downloading "):
            return False
        fetched += 1
        event(
            "progress", {"done": fetched, "total": max(modules, fetched), "detail": "downloading " + line.removeprefix("go: downloading ")}
        )
        return True

    listed = run_go(
        [go, "list", "-deps", *program.flags, "-f", "{{if .Stale}}{{.ImportPath}}\t{{.StaleReason}}{{end}}", program.package],
        module,
        downloading,
        target.parent,
    )
    stale = [line.split("\t")[0] for line in listed if line and not line.endswith(CACHED)]
    total = max(1, len(stale))
    compiled = 0

    def compiling(line: str) -> bool:
        nonlocal compiled
        if " " in line or line.startswith(("go:", "#")) or not line:
            return False
        compiled += 1
        event("progress", {"done": min(compiled, total), "total": total, "detail": f"compiling {line}"})
        return True

    run_go([go, "build", "-v", *program.flags, "-o", str(target), program.package], module, compiling, target.parent)


def run_go(command: list[str], source: Path, progress: Callable[[str], bool], scratch: Path) -> list[str]:
    """Runs go under the shim; standard output's lines. What `progress` does not take of standard error is the message of a failure."""
    out = scratch / "stdout"
    said: list[str] = []
    with open(out, "wb") as stdout:
        process = subprocess.Popen(
            shimmed(command, "go", scratch),
            cwd=source,
            env=go_environment(),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if not progress(line.rstrip("\n")):
                    said.append(line.strip())
        finally:
            if process.poll() is None and sys.exc_info()[0] is not None:
                process.terminate()  # interrupted: the shim takes the compilers with it
            process.wait()
    if process.returncode != 0:
        raise ToolError(reason(" | ".join(filter(None, said[-3:])) or f"exit code {process.returncode}", command[1]))
    return out.read_text(encoding="utf-8").splitlines()


def reason(text: str, what: str) -> str:
    """One line for a failure of `go list` or `go build`."""
    known = explain(OSError(), text)
    if known:
        return known
    if any(
        word in text
        for word in ("dial tcp", "no such host", "i/o timeout", "connection refused", "proxyconnect", "module lookup disabled", "Forbidden")
    ):
        way_out = "set GOPROXY to a module proxy you reach, or give a ready binary by TRAINYARD_KUBE=path"
        return f"Go's modules cannot be downloaded ({text[:200]}): {way_out}"
    return f"go {what} failed: {text[:600]}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Compiles Kubernetes' programs, or finds them in the cache.")
    parser.add_argument("program", nargs="*", metavar="PROGRAM", help=f"{', '.join(PROGRAMS)} (default: {KUBE.name})")
    parser.add_argument("--json", action="store_true", help="events as JSON, one a line")
    options = parser.parse_args()
    for name in options.program:
        if name not in PROGRAMS:
            parser.error(f"there is no program {name!r}: they are {', '.join(PROGRAMS)}")

    def event(name: str, fields: dict[str, Any]) -> None:
        if options.json:
            print(json.dumps({"event": name, **fields}), flush=True)
        elif name == "note":
            print(fields["message"], file=sys.stderr, flush=True)
        elif name == "progress":
            print(f"\r{fields['done']}/{fields['total']} {fields['detail'][:60]:<60}", end="", file=sys.stderr, flush=True)

    def stop(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, stop)  # also where the shell had it ignored, as for what runs in the background
    signal.signal(signal.SIGTERM, stop)
    try:
        for program in [PROGRAMS[name] for name in options.program] or [KUBE]:
            path = ensure(event, program=program)
            if options.json:
                event("binary", {"program": program.name, "path": str(path)})
            else:
                print(path)
    except KeyboardInterrupt:
        return 130
    except (ToolError, OSError) as error:
        message = str(error) if isinstance(error, ToolError) else explain(error) or f"building Kubernetes failed: {error}"
        event("error", {"message": message})
        if not options.json:
            print(message, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
