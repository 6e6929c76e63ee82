"""`make run`: the whole chain on this machine, from nothing running to an exported model and nothing running again.

    python -m local.demo [PIPELINE] [--set KEY=VALUE]... [--state DIR]

Starts the platform (tied to this process: it ends when this ends, however), runs the pipeline with the `trainyard` command as a person
would, shows what happens, stops the platform, and looks itself for what is left. Exit code 0 only if the model was exported, its accuracy
is known, and no pod and no process is left. It knows nothing that the command does not say: no Dag, no S3 key.
"""

from __future__ import annotations

import argparse
import ctypes
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from local.leftovers import processes_of
from local.stack import configuration, control_plane
from local.stack.events import StackError
from local.stack.shim import PR_SET_PDEATHSIG
from local.stack.state import CHECKOUT, State

PODS_GONE_WITHIN_S = 60.0
CANCEL_WITHIN_S = 15.0
STOPPING_LINE_EVERY_S = 1.0
CONFIG = CHECKOUT / "config"
BUSY = 3
"""`up`'s exit code where another has the state folder."""
_libc = ctypes.CDLL(None)  # loaded before any fork: what runs between fork and exec must not import


class DemoError(Exception):
    """What went wrong, in one line."""


class Screen:
    """One line per thing that happened; what moves (progress) is one line rewritten on a terminal, and a line now and then elsewhere."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._moving = sys.stdout.isatty()
        self._last_progress = 0.0

    def line(self, text: str) -> None:
        start = "\r\x1b[2K" if self._moving else ""
        print(f"{start}[{time.monotonic() - self._began:6.1f} s] {text}", flush=True)

    def progress(self, text: str) -> None:
        if self._moving:
            width = os.get_terminal_size().columns if sys.stdout.isatty() else 120
            print(f"\r\x1b[2K[{time.monotonic() - self._began:6.1f} s] {text}"[: width + 5], end="", flush=True)
        elif time.monotonic() - self._last_progress >= 5:
            self._last_progress = time.monotonic()
            self.line(text)

    def seconds(self) -> float:
        return time.monotonic() - self._began


def _die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGTERM), 0, 0, 0)


def spawn(command: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    """A child in a session of its own (Ctrl-C is ours to hand on, in order) that ends when we do."""
    return subprocess.Popen(
        command,
        cwd=CHECKOUT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_die_with_parent,
    )


def events(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """The JSON lines of a child; others are passed to stderr."""
    assert process.stdout is not None
    for line in process.stdout:
        try:
            event = json.loads(line)
        except ValueError:
            print(line, end="", file=sys.stderr)
            continue
        if isinstance(event, dict) and "event" in event:
            yield event


@dataclass
class Demo:
    """One run of the chain."""

    state: State
    pipeline: str
    settings: Sequence[str]
    stack_options: Sequence[str]
    screen: Screen = field(default_factory=Screen)
    platform: subprocess.Popen[str] | None = None
    document: dict[str, Any] = field(default_factory=dict)
    end: dict[str, Any] = field(default_factory=dict)
    pods: list[str] | None = None
    model: Path | None = None
    before: dict[int, str] = field(default_factory=dict)
    """Processes that had to do with the state folder before we began, a shell that is in it for one: not ours to answer for."""
    _token: str = ""
    _run: str | None = None

    # ------------------------------------------------------------------------------------------------------------ the chain
    def check_configuration(self) -> None:
        """Raises DemoError when the pipeline is not in the checkout's configuration, StackError when that is not in order."""
        if os.environ.get("TRAINYARD_CONFIG"):
            self.screen.line(f"TRAINYARD_CONFIG is passed over: this is the sample chain, of {CONFIG}; `./trainyard up` takes it")
        environment = self._stack_environment()
        known = configuration.read(CONFIG, "embedded", environment).pipelines
        if self.pipeline not in known:
            raise DemoError(f"{CONFIG} has no pipeline {self.pipeline!r}: it has {', '.join(known)}")

    @staticmethod
    def _stack_environment() -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name not in ("TRAINYARD_CONFIG", "TRAINYARD_CLUSTER")}

    def bring_up(self) -> None:
        """Raises DemoError when the platform does not come up."""
        self.before = processes_of(self.state.root)
        command = [
            sys.executable,
            "-m",
            "local.stack",
            "up",
            "--foreground",
            "--tied",
            "--json",
            "--state",
            str(self.state.root),
            *self.stack_options,
        ]
        self.platform = spawn(command, self._stack_environment())
        message = ""
        for event in events(self.platform):
            match event["event"]:
                case "phase" if event["state"] == "done":
                    self.screen.line(f"✓ {event['name']} ({event['seconds']} s)")
                case "phase" if event["state"] == "start":
                    self.screen.progress(f"… {event['name']} {event['detail']}")
                case "progress":
                    self.screen.progress(f"… {event['name']} {event['done']}/{event['total']} {event['detail']}")
                case "note":
                    self.screen.line(event["message"])
                case "error":
                    message = event["message"]
                case "up":
                    self.document = {key: value for key, value in event.items() if key != "event"}
                    break
        if not self.document:
            code = self.platform.wait()
            if code == BUSY:  # another's, being started or stopped: its processes are not what we left
                self.platform = None
            raise DemoError(message or f"the platform did not come up (exit code {code}): see {self.state.logs / 'starter.log'}")
        if self.document["starter"]["pid"] != self.platform.pid:
            self.platform = None  # somebody else's: it is not ours to stop
            root = self.state.root
            raise DemoError(
                f"the platform is already up in {root}: use it with `./trainyard run {self.pipeline}`, or end it with `./trainyard down`"
            )
        self.screen.line(f"the platform is up: {self.document['airflow']['url']} (user {self.document['airflow']['admin_user']})")

    def train(self) -> None:
        """Runs the pipeline to its end, whatever that is; `end` has it. Raises DemoError when the command gave none."""
        self._token = self._log_in()
        words = [word for setting in self.settings for word in ("--set", setting)]
        process = spawn(self._command("run", self.pipeline, *words, "--json"), self._environment())
        message = ""
        try:
            for event in events(process):
                match event["event"]:
                    case "run":
                        self._run = event.get("run") or event["run_id"]
                        self.screen.line(f"run {self._run} of {event['dag_id']}, dataset version {event.get('dataset_version')}")
                    case "step":
                        took = f" ({event['seconds']} s)" if event.get("seconds") is not None and event["state"] != "running" else ""
                        self.screen.line(f"  {event['step']:<10} {event['state']}{took}")
                    case "progress":
                        self.screen.progress(progress_line(event))
                    case "end":
                        self.end = event
                    case "error" | "note":
                        message = str(event.get("message") or event.get("text") or event)
                        self.screen.line(message)
            process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        if not self.end:
            raise DemoError(
                message or f"`trainyard run {self.pipeline}` ended with exit code {process.returncode} and said nothing of an end"
            )

    def fetch_model(self) -> None:
        """Downloads what was exported, checked byte by byte, to where it is still at hand when the platform is down."""
        if self.end.get("outcome") != "exported":
            return
        folder = self.state.root / "models" / str(self.end["model"]) / str(self.end["model_version"])
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        words = ["model", "get", self.pipeline, "--model-version", str(self.end["model_version"]), "--output", str(folder), "--json"]
        done = subprocess.run(self._command(*words), cwd=CHECKOUT, env=self._environment(), capture_output=True, text=True)
        if done.returncode != 0:
            raise DemoError(f"the model cannot be downloaded: {done.stderr.strip() or done.returncode}")
        self.model = folder

    def count_pods(self) -> None:
        """Waits until no pod is left, and remembers those that are."""
        plane = control_plane.prepare(self.state, self.document["ports"], Path(self.document["kubernetes"]["binary"]))
        deadline = time.monotonic() + PODS_GONE_WITHIN_S
        try:
            while (pods := plane.all_pods()) and time.monotonic() < deadline:
                self.screen.progress(f"waiting for {len(pods)} pods to go")
                time.sleep(0.5)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise DemoError(f"{plane.server} does not say which pods are left: {error}") from error
        self.pods = pods

    def cancel(self) -> None:
        """The run is not left to go on by itself when the platform starts again; best effort, since we are being interrupted."""
        if self._run and not self.end and self.platform and self.platform.poll() is None:
            self.screen.line(f"cancelling run {self._run}")
            process = spawn(self._command("cancel", self._run), self._environment())
            try:
                process.communicate(timeout=CANCEL_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def take_down(self) -> dict[int, str]:
        """Stops the platform; what is left of it, which is nothing unless there is a fault."""
        if self.platform is not None:
            if self.platform.poll() is None:
                self.screen.progress("stopping the platform")
                self.platform.terminate()
            assert self.platform.stdout is not None
            self.platform.stdout.close()
            while True:
                try:
                    self.platform.wait(timeout=STOPPING_LINE_EVERY_S)
                    break
                except subprocess.TimeoutExpired:
                    self.screen.progress(f"stopping the platform: {len(processes_of(self.state.root))} processes are ending")
        return {pid: command for pid, command in processes_of(self.state.root).items() if pid not in self.before}

    # -------------------------------------------------------------------------------------------------------------- helpers
    def _log_in(self) -> str:
        """A token of the administrator, as a login in the browser would give."""
        airflow = self.document["airflow"]
        password = json.loads(Path(airflow["passwords_file"]).read_text(encoding="utf-8"))[airflow["admin_user"]]
        body = json.dumps({"username": airflow["admin_user"], "password": password}).encode()
        call = urllib.request.Request(f"{airflow['url']}/auth/token", data=body, headers={"Content-Type": "application/json"})
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(call, timeout=30) as answer:
                return str(json.load(answer)["access_token"])
        except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
            raise DemoError(f"{airflow['url']} gives no token to {airflow['admin_user']}: {error}") from error

    def _command(self, *words: str) -> list[str]:
        return [sys.executable, "-c", "from trainyard.cli.main import app; app()", *words]

    def _environment(self) -> dict[str, str]:
        """As a person's shell has it: Airflow's address and a token, nothing of S3 or Kubernetes."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRAINYARD_", "AIRFLOW", "KUBECONFIG", "AWS_"))}
        kept["PYTHONPATH"] = str(CHECKOUT / "plugins")
        return {**kept, "TRAINYARD_URL": self.document["airflow"]["url"], "TRAINYARD_TOKEN": self._token}

    def table(self, left: dict[int, str]) -> tuple[list[str], bool]:
        """The last lines, and whether all is as it should be."""
        end = self.end
        rows = [
            ("outcome", f"{end.get('outcome') or '-'} ({end.get('state')})"),
            ("accuracy", "-" if end.get("accuracy") is None else f"{end['accuracy']:.4f}"),
            ("dataset version", str(end.get("dataset_version") or "-")),
            ("model", f"{end.get('model')} version {end.get('model_version')}: {self.model}" if self.model else "-"),
            *((f"  {step}", "-" if seconds is None else f"{seconds:6.1f} s") for step, seconds in (end.get("steps") or {}).items()),
            ("run, in all", "-" if end.get("seconds") is None else f"{end['seconds']:6.1f} s"),
            ("everything", f"{self.screen.seconds():6.1f} s"),
            ("pods left", "not counted" if self.pods is None else str(len(self.pods))),
            ("processes left", str(len(left))),
        ]
        well = (
            end.get("state") == "success"
            and end.get("outcome") == "exported"
            and end.get("accuracy") is not None
            and self.model is not None
            and self.pods == []
            and not left
        )
        lines = [f"  {name:<16} {value}" for name, value in rows]
        if end.get("state") != "success" or end.get("outcome") != "exported":
            lines.append(f"  reason           {end.get('reason') or 'none was given'}")
        lines += [f"  pod left         {pod}" for pod in self.pods or []]
        lines += [f"  process left     {pid} {command[:100]}" for pid, command in left.items()]
        return lines, well


def progress_line(event: dict[str, Any]) -> str:
    """Training, in one line: step, loss, examples a second."""
    total = f"/{event['total_steps']}" if event.get("total_steps") else ""
    loss = f", loss {event['loss']:.4f}" if event.get("loss") is not None else ""
    speed = f", {event['examples_per_second']:.0f} examples/s" if event.get("examples_per_second") is not None else ""
    return f"  training: step {event['step']}{total}{loss}{speed}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make run", description="The whole chain on this machine, once.")
    parser.add_argument("pipeline", nargs="?", default="mnist-cnn")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help="a parameter of the run's form")
    parser.add_argument("--state", type=Path, default=Path(os.environ.get("TRAINYARD_STATE") or CHECKOUT / "var"))
    parser.add_argument("--port-base", metavar="N")
    options = parser.parse_args()

    def stop(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    # INT too: a shell starts what it runs in the background with INT ignored, and Python then leaves it so.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    stack_options = ["--port-base", str(options.port_base)] if options.port_base is not None else []
    try:
        demo = Demo(State.at(options.state), options.pipeline, options.settings, stack_options)
    except StackError as error:
        print(f"✗ {error}", file=sys.stderr)
        return 1
    failed: str | None = None
    try:
        demo.check_configuration()
        demo.bring_up()
        demo.train()
        demo.fetch_model()
        demo.count_pods()
    except (DemoError, StackError) as error:
        failed = str(error)
    except KeyboardInterrupt:
        failed = "interrupted"
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the second Ctrl-C must not leave what the first one was ending
            signal.signal(number, signal.SIG_IGN)
        if failed == "interrupted":
            demo.screen.line("interrupted: stopping everything")
            demo.cancel()
        left = demo.take_down() if demo.platform else {}
    if failed:
        demo.screen.line(f"✗ {failed}")
        for pid, command in left.items():
            demo.screen.line(f"process left: {pid} {command[:100]}")
        return 130 if failed == "interrupted" else 1
    lines, well = demo.table(left)
    demo.screen.line("done" if well else "✗ not everything is as it should be")
    print("\n".join(lines), flush=True)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
