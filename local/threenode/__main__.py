"""`python -m local.threenode`: a Kubernetes of a master and nodes on this machine. What `trainyard cluster` and the tests call.

Exit codes: 0 done (and `up`: it is up), 1 failed (one line on stderr) or not well (`status`), 2 wrong arguments, 3 not up (`status`) or
busy starting (`up`).
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from local.stack.control import ask
from local.stack.daemon import busy, end, hold, launch, tell_error
from local.stack.events import Reporter, StackError
from local.stack.state import CHECKOUT
from local.threenode import cleaning, needs, network, programs, status
from local.threenode.layout import ClusterState, default_root
from local.threenode.plan import PORTS, Plan, port_numbers
from local.threenode.plan import network as parse_network
from local.threenode.starter import Starter

DOWN_BOUND_S = 90.0
WHAT, WAY_OUT = "cluster", "wait for it, then look with `trainyard cluster status`"
UNBUSY_S = 5.0


def parser() -> argparse.ArgumentParser:
    main = argparse.ArgumentParser(prog="python -m local.threenode", description="A Kubernetes of a master and nodes on this machine.")
    commands = main.add_subparsers(dest="command", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=text, description=text)
        one.add_argument(
            "--state", type=Path, default=default_root(), help="the cluster's folder (TRAINYARD_THREENODE; default: %(default)s)"
        )
        one.add_argument("--json", action="store_true", help="events or state as JSON, one a line")
        return one

    plan = Plan()
    for name, text in (("up", "start it, and keep it running"), ("serve", argparse.SUPPRESS)):
        up = command(name, text)
        up.add_argument("--nodes", type=int, default=plan.nodes, metavar="N", help="how many nodes (default: %(default)s)")
        up.add_argument("--cpus", type=float, metavar="N", help="CPUs that each node offers (default: the machine's)")
        up.add_argument("--memory", type=float, metavar="GIB", help="memory that each node offers (default: the machine's)")
        up.add_argument("--bridge", default=plan.bridge, metavar="NAME", help="name of the network bridge (default: %(default)s)")
        up.add_argument("--subnet", default=str(plan.subnet), metavar="NET", help="of master and nodes (default: %(default)s)")
        up.add_argument("--pods", default=str(plan.pods), metavar="NET", help="of pods (default: %(default)s)")
        up.add_argument("--services", default=str(plan.services), metavar="NET", help="of Services (default: %(default)s)")
        up.add_argument("--port", action="append", default=[], metavar="NAME=N", help=f"one port; names: {', '.join(PORTS)}")
        up.add_argument("--unsafe-no-fsync", action="store_true", help="etcd without fsync: for clusters that are thrown away")
        if name == "serve":
            up.add_argument("--programs", required=True, help="name -> path of the built programs, as JSON")
    down = command("down", "stop it and delete its objects; images that were pushed stay")
    down.add_argument("--all", action="store_true", help="delete its folder too: images, keys, logs")
    command("status", "what runs, and how well")
    for name, text in (
        ("node-down", "switch a node off, as by its power button"),
        ("node-up", "switch a node on again"),
        ("cut", "pull a node's network cable"),
        ("mend", "plug it in again"),
    ):
        command(name, text).add_argument("node", metavar="NAME", help="kube-node1, …")
    return main


def plan_from(arguments: argparse.Namespace) -> Plan:
    """Raises StackError naming the option."""
    return Plan(
        nodes=arguments.nodes,
        cpus=arguments.cpus,
        memory=arguments.memory,
        bridge=arguments.bridge,
        subnet=parse_network("--subnet", arguments.subnet),
        pods=parse_network("--pods", arguments.pods),
        services=parse_network("--services", arguments.services),
        ports=port_numbers(arguments.port),
        fsync=not arguments.unsafe_no_fsync,
    )


# ---------------------------------------------------------------------------------------------------------------------- up
def serve(state: ClusterState, arguments: argparse.Namespace) -> int:
    """The starter itself, in this process."""
    lock = hold(state)
    if lock is None:
        return busy(state, WHAT, WAY_OUT, Reporter(as_json=arguments.json))
    logging.basicConfig(filename=state.logs / "starter.log", level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    built = {name: Path(path) for name, path in json.loads(arguments.programs).items()}
    try:
        return Starter(state, plan_from(arguments), built, Reporter(sys.stdout, as_json=arguments.json)).run()
    finally:
        lock.release()


def refuse_another_plan(state: ClusterState, plan: Plan) -> None:
    """Raises StackError when a cluster that is up has another plan: to `up` it with new options would only seem to work."""
    there = cleaning.plan_of(state)
    if there is None or there == plan:
        return
    before, now = there.document(), plan.document()
    differ = [f"{name} is {before[name]}, not {now[name]}" for name in before if before[name] != now[name]]
    raise StackError(f"the cluster in {state.root} is up with another plan ({'; '.join(differ)}): `trainyard cluster down` first")


def up(state: ClusterState, arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    """Starts the daemon and shows its progress; when this program is interrupted before it is up, so is the start."""
    reporter = Reporter(as_json=arguments.json)
    plan = plan_from(arguments)  # wrong options are an error here, not in a log
    needs.check_packages()
    needs.check_kernel()
    if state.starter():
        if state.read().get("phase") == "up":
            refuse_another_plan(state, plan)
        code = busy(state, WHAT, WAY_OUT, reporter)
        if code == 0 and not arguments.json:
            print(how_to_use(state.read()))
        return code
    network.check_free(plan, state.root)
    built = {name: str(path) for name, path in programs.ensure(reporter).items()}
    words = [word for word in argv[1:] if word != "--json"]
    command = [sys.executable, "-m", "local.threenode", "serve", "--json", "--programs", json.dumps(built), *words]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    return launch(command, state, environment, reporter, how_to_use)


def how_to_use(value: dict[str, Any]) -> str:
    registry = value["registry"]
    return f"export KUBECONFIG={value['kubeconfig']}\nimages: docker push {registry}/NAME; the nodes pull that very name"


# -------------------------------------------------------------------------------------------------------------------- down
def down(state: ClusterState, arguments: argparse.Namespace) -> int:
    """Stops the starter, which stops the rest; then makes sure, by what the folder says."""
    reporter = Reporter(as_json=arguments.json)
    starter = state.starter()
    with reporter.phase("stopping"):
        if starter:
            end(starter, DOWN_BOUND_S, reporter)
        with held(state):
            removed = cleaning.remove_leftovers(state, cleaning.plan_of(state))
            cleaning.forget(state)
    if not starter:
        reporter.note(f"an earlier start had left {removed}: taken away" if str(removed) else "the cluster was not up")
    value = state.read()
    if value and value.get("phase") != "down":
        state.write({**value, "phase": "down", "components": {}, "off": []})
    if arguments.all:
        cleaning.forget(state, everything=True)
    return 0


@contextmanager
def held(state: ClusterState) -> Iterator[None]:
    """The starter's lock: nobody brings the cluster up while its remains are taken away. Raises StackError."""
    deadline = time.monotonic() + UNBUSY_S
    while (lock := hold(state)) is None:
        if time.monotonic() > deadline:
            raise StackError(f"pid {state.starter_pid()} has begun to start the cluster in {state.root} meanwhile: run `down` again")
        time.sleep(0.1)
    try:
        yield
    finally:
        lock.release()


# ------------------------------------------------------------------------------------------------------------------ status
def show_status(state: ClusterState, arguments: argparse.Namespace) -> int:
    """Asks every part afresh. 0: up and well; 1: up, but something is not well; 3: not up."""
    document = status.collect(state)
    if arguments.json:
        print(json.dumps(document))
    else:
        print(f"{document['phase']} in {document['state_dir']}")
        if document.get("left_over"):
            print(f"  left over by a start that was killed: {len(document['left_over'])} processes (`trainyard cluster down` ends them)")
        for node in document["nodes"]:
            what = "off" if not node["power"] else "Ready" if node["ready"] else "NOT READY"
            cable = "" if node["cable"] or not node["power"] else ", cable cut"
            print(
                f"  {node['name']:<12} {node['address']:<15} {what}{cable}; {node['pods']} pods; cpu {node['cpu']}, memory {node['memory']}"
            )
        for part in document["parts"]:
            mark = "" if part["well"] else "  NOT WELL"
            print(f"  {part['machine']:<12} {part['name']:<24} {part['state']:<9} restarts {part['restarts']}{mark}")
        if document["phase"] == "up":
            print(how_to_use(document))
    if document["phase"] == "down":
        return 3
    return 0 if document.get("well") else 1


# ------------------------------------------------------------------------------------------------------------------- nodes
def need_up(state: ClusterState) -> Plan:
    """Raises StackError when the cluster is not up."""
    plan = cleaning.plan_of(state)
    if plan is None or state.starter() is None or state.read().get("phase") != "up":
        raise StackError(f"the cluster in {state.root} is not up: `trainyard cluster up`")
    return plan


def switch(state: ClusterState, arguments: argparse.Namespace) -> int:
    """`node-down` and `node-up`, by the starter."""
    need_up(state).named(arguments.node)
    reporter = Reporter(as_json=arguments.json)
    for event in ask(state, {"do": arguments.command, "node": arguments.node}):
        reporter.emit(event.pop("event"), **event)
    return 0


def cable(state: ClusterState, arguments: argparse.Namespace) -> int:
    """`cut` and `mend`."""
    node = need_up(state).named(arguments.node)
    network.set_cable(node, plugged=arguments.command == "mend")
    Reporter(as_json=arguments.json).note(f"{node.name}: cable {'plugged in' if arguments.command == 'mend' else 'pulled'}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    arguments = parser().parse_args(words)
    try:
        needs.check_root(f"`trainyard cluster {arguments.command}`")
        if arguments.command not in ("up", "serve") and not arguments.state.is_dir():
            if arguments.command in ("down", "status"):
                return never_up(arguments)
            raise StackError(f"the cluster in {arguments.state} is not up: `trainyard cluster up`")
        state = ClusterState.at(arguments.state)
        if arguments.command == "up":
            return up(state, arguments, words)
        doings = {"serve": serve, "down": down, "status": show_status, "cut": cable, "mend": cable, "node-down": switch, "node-up": switch}
        return doings[arguments.command](state, arguments)
    except StackError as error:
        tell_error(str(error), as_json=arguments.json)
        return 1
    except KeyboardInterrupt:
        return 130


def never_up(arguments: argparse.Namespace) -> int:
    """`down` and `status` where there is no folder make none."""
    if arguments.command == "down":
        Reporter(as_json=arguments.json).note("the cluster was not up")
        return 0
    document = {"phase": "down", "state_dir": str(arguments.state), "parts": [], "nodes": []}
    print(json.dumps(document) if arguments.json else f"down in {arguments.state}")
    return 3


if __name__ == "__main__":
    sys.exit(main())
