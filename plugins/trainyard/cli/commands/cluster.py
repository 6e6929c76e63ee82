"""``trainyard cluster …``: a Kubernetes of a master and nodes on this one Linux machine, for people who have none. Needs root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from trainyard.cli import places, programs
from trainyard.cli.exits import Exit, RunFailedError
from trainyard.cli.invoking import JsonOption
from trainyard.cli.output import Output, size
from trainyard.errors import RefusedError

MODULE, WHAT = "local.threenode", "a cluster of one's own"

cluster = typer.Typer(name="cluster", help="A Kubernetes of a master and nodes on this machine (root).", no_args_is_help=True)

State = Annotated[
    Path | None,
    typer.Option("--state", metavar="DIR", help="The cluster's folder; TRAINYARD_THREENODE, else /var/lib/trainyard/threenode."),
]
NodeName = Annotated[str, typer.Argument(metavar="NAME", help="As `status` names it: kube-node1, …")]


@cluster.command()
def up(
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", help="How many nodes.")] = 2,
    cpus: Annotated[float | None, typer.Option("--cpus", metavar="N", help="CPUs that each node offers; else all.")] = None,
    memory: Annotated[float | None, typer.Option("--memory", metavar="GIB", help="Memory that each offers; else all of it.")] = None,
    subnet: Annotated[str | None, typer.Option("--subnet", metavar="NET", help="Of master and nodes, as 172.31.254.0/24.")] = None,
    pods: Annotated[str | None, typer.Option("--pods", metavar="NET", help="Of pods, as 10.245.0.0/16.")] = None,
    services: Annotated[str | None, typer.Option("--services", metavar="NET", help="Of Services, as 10.98.0.0/16.")] = None,
    bridge: Annotated[str | None, typer.Option("--bridge", metavar="NAME", help="Name of the network bridge, as ty0.")] = None,
    port: Annotated[list[str] | None, typer.Option("--port", metavar="NAME=N", help="One port by name; may be repeated.")] = None,
    unsafe_no_fsync: Annotated[bool, typer.Option("--unsafe-no-fsync", help="Faster, for a cluster that is thrown away.")] = False,
    state: State = None,
    as_json: JsonOption = False,
) -> None:
    """Start a cluster: etcd, the API server and its controllers, a registry, and nodes with containerd and kubelet.

    The first time, its programs are compiled (minutes). It ends when every node is Ready and names resolve.
    """
    out = Output(as_json=as_json)
    given = {"--cpus": cpus, "--memory": memory, "--subnet": subnet, "--pods": pods, "--services": services, "--bridge": bridge}
    words = ["--nodes", str(nodes), *(word for option, value in given.items() if value is not None for word in (option, str(value)))]
    words += [word for one in port or [] for word in ("--port", one)]
    if unsafe_no_fsync:
        words.append("--unsafe-no-fsync")
    _run("up", words, state, out)
    if as_json:
        return  # the last event has it
    document = _status(state)
    out.line(f"export KUBECONFIG={document['kubeconfig']}")
    out.line(f"images: docker push {document['registry']}/NAME; the nodes pull that very name")


@cluster.command()
def down(
    everything: Annotated[bool, typer.Option("--all", help="Delete its folder too: pushed images, keys, logs.")] = False,
    state: State = None,
    as_json: JsonOption = False,
) -> None:
    """Stop the cluster and delete its objects; images that were pushed stay for the next one."""
    _run("down", ["--all"] if everything else [], state, Output(as_json=as_json))


@cluster.command()
def status(state: State = None, as_json: JsonOption = False) -> None:
    """Say how every part of the cluster is. Exit code 1: something is not well; 3: it is not up."""
    out = Output(as_json=as_json)
    document = _status(state)
    out.document(document)
    _show(document, out)
    if document["phase"] == "down":
        raise typer.Exit(Exit.NOT_REACHABLE)
    if not document.get("well"):
        raise typer.Exit(Exit.RUN_FAILED)


@cluster.command("node-down")
def node_down(name: NodeName, state: State = None, as_json: JsonOption = False) -> None:
    """Switch a node off, as by its power button: everything on it ends at once."""
    _run("node-down", [name], state, Output(as_json=as_json))


@cluster.command("node-up")
def node_up(name: NodeName, state: State = None, as_json: JsonOption = False) -> None:
    """Switch a node on again; ends when it is Ready."""
    _run("node-up", [name], state, Output(as_json=as_json))


@cluster.command()
def cut(name: NodeName, state: State = None, as_json: JsonOption = False) -> None:
    """Pull a node's network cable: what runs on it goes on, and nobody hears of it."""
    _run("cut", [name], state, Output(as_json=as_json))


@cluster.command()
def mend(name: NodeName, state: State = None, as_json: JsonOption = False) -> None:
    """Plug a node's network cable in again."""
    _run("mend", [name], state, Output(as_json=as_json))


# ------------------------------------------------------------------------------------------------------------------- shared


def _words(state: Path | None) -> list[str]:
    return ["--state", str(state.absolute())] if state else []


def _run(command: str, words: Sequence[str], state: Path | None, out: Output) -> None:
    if programs.run(MODULE, [command, *_words(state), *words], out, WHAT):
        raise typer.Exit(Exit.RUN_FAILED)


def _status(state: Path | None) -> dict[str, Any]:
    """What the program says of the cluster. Raises RefusedError (not root) and RunFailedError."""
    root = places.need_checkout(WHAT)
    command = [sys.executable, "-P", "-m", MODULE, "status", "--json", *_words(state)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    try:
        document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError) as e:
        raise RunFailedError(f"the cluster's state cannot be had: {done.stderr.strip()[-500:] or f'exit code {done.returncode}'}") from e
    if document.get("event") == "error":
        raise RefusedError(document["message"])
    return document


def _show(document: dict[str, Any], out: Output) -> None:
    out.line(f"{document['phase']} in {document['state_dir']}")
    if document.get("left_over"):
        out.line(f"{len(document['left_over'])} processes are left of a start that was killed: `trainyard cluster down` ends them")
    if not document["nodes"]:
        return
    rows = []
    for node in document["nodes"]:
        power = "off" if not node["power"] else "Ready" if node["ready"] else "not Ready"
        cable = "-" if not node["power"] else "plugged in" if node["cable"] else "cut"
        rows.append([node["name"], node["address"], power, cable, node["pods"], node["cpu"], _memory(node["memory"])])
    out.table(["node", "address", "state", "cable", "pods", "CPUs", "memory"], rows)
    out.table(
        ["machine", "part", "state", "restarts"],
        [[part["machine"], part["name"], part["state"], part["restarts"]] for part in document["parts"]],
    )
    out.line(f"KUBECONFIG={document['kubeconfig']}  registry {document['registry']}")


def _memory(text: str | None) -> str | None:
    """`8388608Ki`, as a kubelet has it, for people."""
    return size(int(text[:-2]) * 1024) if text and text.endswith("Ki") and text[:-2].isdigit() else text
