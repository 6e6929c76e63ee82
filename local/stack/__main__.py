"""`python -m local.stack`: up, down, status, restart. What the `trainyard` command and the tests call; see --help of each.

Exit codes: 0 done (and `up`: it is up), 1 failed (one line on stderr), 2 wrong arguments, 3 not up (`status`) or busy starting (`up`).
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from local.stack import ports, processes, shim
from local.stack.airflow import Airflow
from local.stack.control import ask
from local.stack.control_plane import ControlPlane, prepare
from local.stack.daemon import busy, end, hold, launch, tell_error
from local.stack.events import Reporter, StackError
from local.stack.s3 import LOOPBACK, S3
from local.stack.site import EMBEDDED
from local.stack.starter import Options, Starter
from local.stack.state import CHECKOUT, State

DOWN_BOUND_S = 60.0
WHAT, WAY_OUT = "platform", "wait for it, or use another --state DIR"


def parser() -> argparse.ArgumentParser:
    main = argparse.ArgumentParser(prog="python -m local.stack", description="The platform on this one machine.")
    commands = main.add_subparsers(dest="command", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=text, description=text)
        default = Path(os.environ.get("TRAINYARD_STATE") or CHECKOUT / "var")
        one.add_argument("--state", type=Path, default=default, help="the state folder (TRAINYARD_STATE; default: %(default)s)")
        one.add_argument("--json", action="store_true", help="events or state as JSON, one a line")
        return one

    for name, text in (("up", "start everything, and keep it running"), ("serve", argparse.SUPPRESS)):
        up = command(name, text)
        up.add_argument(
            "--port-base",
            metavar="N",
            help=f"first port of the block, Airflow's (TRAINYARD_PORT_BASE; default: {ports.DEFAULT_BASE})",
        )
        up.add_argument("--port", action="append", default=[], metavar="NAME=N", help=f"one port; names: {', '.join(ports.NAMES)}")
        up.add_argument("--cluster", metavar="NAME", help="the profile in clusters/ (TRAINYARD_CLUSTER; default: the embedded cluster)")
        up.add_argument("--no-airflow", action="store_true", help="only the cluster and S3")
        up.add_argument("--no-s3", action="store_true", help="only the cluster, with --no-airflow")
        up.add_argument("--name", metavar="HOST", help="listen for Kubernetes' API everywhere, as HOST too (default: on loopback)")
        up.add_argument("--kubeconfigs", type=Path, metavar="DIR", help="where Airflow's side finds kubeconfigs that name HOST")
        up.add_argument("--images", type=Path, metavar="FILE", default=CHECKOUT / "local" / "images.yaml", help="what runs as which image")
        up.add_argument("--no-sync", action="store_true", help="do not run `trainyard sync` before Airflow starts")
        up.add_argument("--unsafe-no-fsync", action="store_true", help="etcd without fsync: for clusters that are thrown away")
        up.add_argument("--node-cpu", type=int, metavar="N", help="CPUs that the node says it has (default: the kubelet's)")
        up.add_argument("--node-memory", type=int, metavar="BYTES", help="memory that the node says it has (default: the machine's)")
        up.add_argument("--foreground", action="store_true", help="stay; the platform ends with this program")
        up.add_argument("--tied", action="store_true", help="with --foreground: end when the parent process ends, however it ends")
    command("down", "stop everything")
    command("status", "what runs, and how well")
    command("restart", "restart one component, or `airflow` for all of Airflow's").add_argument("what")
    return main


def options_of(arguments: argparse.Namespace) -> Options:
    """Raises StackError: options that contradict each other, or a port that is none."""
    if arguments.no_s3 and not arguments.no_airflow:
        raise StackError(
            "--no-s3: Airflow's side needs an S3 server: give --no-airflow too, or a cluster profile whose s3.mode is external"
        )
    if bool(arguments.name) != bool(arguments.kubeconfigs):
        raise StackError("--name and --kubeconfigs go together: give both, or neither")
    overrides = dict(ports.parse_override(text) for text in arguments.port)
    return Options(
        ports=ports.plan(ports.base(arguments.port_base, os.environ), overrides),
        airflow=not arguments.no_airflow,
        s3=not arguments.no_s3,
        sync=not arguments.no_sync,
        fsync=not arguments.unsafe_no_fsync,
        config=Path(os.environ.get("TRAINYARD_CONFIG") or CHECKOUT / "config").absolute(),
        cluster=arguments.cluster or os.environ.get("TRAINYARD_CLUSTER") or EMBEDDED,
        name=arguments.name,
        handed_out=arguments.kubeconfigs,
        images=arguments.images.absolute(),
        node_cpu=arguments.node_cpu,
        node_memory=arguments.node_memory,
    )


def serve(state: State, arguments: argparse.Namespace) -> int:
    """The starter itself, in this process."""
    if arguments.tied:
        shim.prctl(shim.PR_SET_PDEATHSIG, signal.SIGTERM)
    options = options_of(arguments)
    lock = hold(state)
    if lock is None:
        return busy(state, WHAT, WAY_OUT, Reporter(as_json=arguments.json))
    logging.basicConfig(filename=state.logs / "starter.log", level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        return Starter(state, options, Reporter(sys.stdout, as_json=arguments.json)).run()
    finally:
        lock.release()


def up(state: State, arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    """Starts the daemon and shows its progress; when this program is interrupted before it is up, so is the start."""
    reporter = Reporter(as_json=arguments.json)
    options_of(arguments)  # wrong options are an error here, not in a log
    if arguments.foreground:
        code = serve(state, arguments)
        return code
    if state.starter():
        code = busy(state, WHAT, WAY_OUT, reporter)
        if code == 0 and not arguments.json:
            print(how_to_log_in(state.read()))
        return code
    command = [sys.executable, "-m", "local.stack", "serve", "--json", *(word for word in argv[1:] if word != "--json")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])])}
    return launch(command, state, environment, reporter, how_to_log_in)


def how_to_log_in(value: dict[str, Any]) -> str:
    """The address, and the administrator's name and password."""
    lines = [f"Kubernetes  KUBECONFIG={value['kubernetes']['kubeconfig']}"]
    if "s3" in value:
        lines.append(f"S3          {value['s3']['endpoint']}  (keys: {value['s3']['admin_file']})")
    if "airflow" in value:
        one = value["airflow"]
        password = json.loads(Path(one["passwords_file"]).read_text(encoding="utf-8"))[one["admin_user"]]
        lines.insert(
            0, f"Airflow     {one['url']}  user {one['admin_user']}, password {password}  (all passwords: {one['passwords_file']})"
        )
    return "\n".join(lines)


def down(state: State, arguments: argparse.Namespace) -> int:
    """Stops the starter, which stops the rest; then makes sure, by what the shims recorded."""
    reporter = Reporter(as_json=arguments.json)
    starter = state.starter()
    with reporter.phase("stopping"):
        if starter:
            end(starter, DOWN_BOUND_S, reporter)
        try:
            killed = processes.sweep(state.run)
        except TimeoutError as error:
            raise StackError(str(error)) from error
    if not starter:
        reporter.note(f"ended {len(killed)} left-over processes" if killed else "the platform was not up")
    value = state.read()
    if value and value.get("phase") != "down":
        state.write({**value, "phase": "down", "components": {}})
    return 0


def status(state: State, arguments: argparse.Namespace) -> int:
    """Asks every part afresh. 0: up and well; 1: up, but something is not well; 3: not up."""
    value = state.read()
    if not state.starter():
        value = {**value, "phase": "down", "components": {}, "left_over": processes.left_over(state.run)}
    health: dict[str, bool] = {}
    if value.get("phase") != "down" and "kubernetes" in value:
        if "binary" in value["kubernetes"]:
            plane: ControlPlane = prepare(state, value["ports"], Path(value["kubernetes"]["binary"]))
            health = {"kubernetes": plane.ready(), "node": plane.node_ready()}
        if "s3" in value:
            host = urlsplit(value["s3"]["endpoint"]).hostname or LOOPBACK
            health["s3"] = S3(state, value["ports"], Path(), host).ready()
        if "airflow" in value:
            found = Airflow(state, value["ports"]).health()
            for part in ("metadatabase", "scheduler", "dag_processor", "triggerer"):
                health[f"airflow_{part}"] = (found.get(part) or {}).get("status") == "healthy"
    value["health"] = health
    if arguments.json:
        print(json.dumps(value))
    else:
        print(f"{value.get('phase', 'down')} in {state.root}")
        for name, one in value.get("components", {}).items():
            print(f"  {name:<26} {one['state']:<9} pid {one['pid'] or '-':<8} restarts {one['restarts']}")
        for name, well in health.items():
            print(f"  {name:<26} {'well' if well else 'NOT WELL'}")
        if value.get("phase") == "up":
            print(how_to_log_in(value))
    if value.get("phase") in (None, "down"):
        return 3
    return 0 if value["phase"] == "up" and all(health.values()) else 1


def restart(state: State, arguments: argparse.Namespace) -> int:
    reporter = Reporter(as_json=arguments.json)
    for event in ask(state, {"do": "restart", "what": arguments.what}):
        reporter.emit(event.pop("event"), **event)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    arguments = parser().parse_args(words)
    try:
        state = State.at(arguments.state)
        if arguments.command == "up":
            return up(state, arguments, words)
        return {"serve": serve, "down": down, "status": status, "restart": restart}[arguments.command](state, arguments)
    except StackError as error:
        tell_error(str(error), as_json=arguments.json)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
