"""The machine's side of the cluster's network: the bridge that all cables are plugged into, and the few rules of iptables it needs.

All of it can be made again where it is there already, and taken away where it is not.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network
from pathlib import Path

from local.stack.events import StackError
from local.threenode.needs import SEARCH
from local.threenode.plan import Node, Plan

GONE_WITHIN_S = 10.0
ALIAS = "trainyard cluster in "
INTERFACES = Path("/sys/class/net")
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")


def run(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs a program of the network's tools. Raises StackError with what it said."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, env={"PATH": SEARCH, "LC_ALL": "C"}, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StackError(f"`{' '.join(words)}` cannot be run: {error}") from error
    if check and done.returncode != 0:
        raise StackError(f"`{' '.join(words)}` failed: {(done.stderr or done.stdout).strip()[:300]}")
    return done


# -------------------------------------------------------------------------------------------------------------------- rules
def rules(plan: Plan) -> list[tuple[str, ...]]:
    """(table, chain, …): nodes and pods reach each other and the world also where an engine beside us (Docker) drops what is forwarded."""
    ours = ("-m", "comment", "--comment", f"trainyard {plan.bridge}")
    return [
        ("filter", "FORWARD", "-i", plan.bridge, *ours, "-j", "ACCEPT"),
        ("filter", "FORWARD", "-o", plan.bridge, *ours, "-j", "ACCEPT"),
        ("nat", "POSTROUTING", "-s", str(plan.subnet), "!", "-o", plan.bridge, *ours, "-j", "MASQUERADE"),
    ]


def _iptables(command: str, rule: Sequence[str], *, check: bool = True) -> bool:
    table, chain, *words = rule
    return run("iptables", "-w", "10", "-t", table, command, chain, *words, check=check).returncode == 0


# ------------------------------------------------------------------------------------------------------------------- bridge
def links() -> dict[str, dict[str, object]]:
    """Every interface of the machine by name, as `ip` describes it."""
    found = json.loads(run("ip", "-json", "addr").stdout or "[]")
    return {str(one["ifname"]): one for one in found if "ifname" in one}


def _networks(link: dict[str, object]) -> Iterator[IPv4Network]:
    for one in link.get("addr_info") or []:  # type: ignore[attr-defined]
        if one.get("family") == "inet":
            yield IPv4Network(f"{one['local']}/{one['prefixlen']}", strict=False)


def owner(plan: Plan) -> str | None:
    """The folder of the cluster whose bridge it is; None where there is no bridge of that name, or it is no cluster's."""
    try:
        alias = (INTERFACES / plan.bridge / "ifalias").read_text(encoding="utf-8").strip()  # `ip -json addr` does not tell it
    except OSError:
        return None
    return alias.removeprefix(ALIAS) if alias.startswith(ALIAS) else None


def check_free(plan: Plan, folder: Path) -> None:
    """For the cluster in `folder`. Raises StackError where another's is up on the same bridge (to end ours would be to end its), or where
    another interface has addresses of ours: both would be unreachable by turns."""
    if (other := owner(plan)) not in (None, str(folder)):
        way_out = (
            f"`trainyard cluster down --state {other}` first, or give other values of --bridge, --subnet, --pods, --services and --port"
        )
        raise StackError(f"interface {plan.bridge} is of the cluster in {other}: {way_out}")
    options = {"--subnet": plan.subnet, "--pods": plan.pods, "--services": plan.services}
    for name, link in links().items():
        if name == plan.bridge:
            continue
        for there in _networks(link):
            for option, ours in options.items():
                if there.overlaps(ours) and there.prefixlen > 0:
                    raise StackError(f"{option} {ours} overlaps with {there}, which interface {name} has: choose another by {option}")


def make(plan: Plan, folder: Path) -> None:
    """Bridge, address, rules, forwarding, for the cluster in `folder`. Raises StackError."""
    check_free(plan, folder)
    there = links().get(plan.bridge)
    if there is None:
        run("ip", "link", "add", plan.bridge, "type", "bridge")
    elif there.get("link_type") != "ether" or run("ip", "-d", "link", "show", plan.bridge).stdout.find("bridge") < 0:
        raise StackError(f"interface {plan.bridge} is there already, and is no bridge: choose another name by --bridge")
    run("ip", "link", "set", plan.bridge, "alias", f"{ALIAS}{folder}")
    run("ip", "addr", "replace", f"{plan.master}/{plan.subnet.prefixlen}", "dev", plan.bridge)
    run("ip", "link", "set", plan.bridge, "up")
    try:
        FORWARDING.write_text("1", encoding="ascii")
    except OSError as error:
        raise StackError(f"{FORWARDING} cannot be set to 1 ({error.strerror}): nodes would not reach each other's pods") from error
    for rule in rules(plan):
        if not _iptables("-C", rule, check=False):
            _iptables("-I", rule)


def remove(plan: Plan) -> list[str]:
    """Takes away interfaces and rules; what there was. Raises StackError when something stays."""
    removed = []
    for name in links():
        if name == plan.bridge or name.startswith(f"{plan.bridge}-n"):
            run("ip", "link", "del", name, check=False)  # a node's cable goes with the node as well: it may just have gone
            removed.append(name)
    for rule in rules(plan):
        while _iptables("-D", rule, check=False):
            removed.append(" ".join(rule))
    deadline = time.monotonic() + GONE_WITHIN_S
    while left := [name for name in links() if name in removed]:
        if time.monotonic() > deadline:
            raise StackError(f"interface {left[0]} does not go: `ip link del {left[0]}` says why")
        time.sleep(0.05)
    return removed


# -------------------------------------------------------------------------------------------------------------------- cables
def set_cable(node: Node, *, plugged: bool) -> None:
    """Pulls or plugs a node's cable. Raises StackError where the node is off: it has none."""
    if node.cable not in links():
        raise StackError(f"{node.name} is off: it has no cable to pull or plug (`trainyard cluster node-up {node.name}`)")
    run("ip", "link", "set", node.cable, "up" if plugged else "down")


def is_plugged(node: Node) -> bool | None:
    """None where the node is off."""
    link = links().get(node.cable)
    if link is None:
        return None
    flags = link.get("flags")
    return isinstance(flags, list) and "UP" in flags
