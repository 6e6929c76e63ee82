"""Which TCP ports the platform takes on loopback: a block from a base, each of them overridable, and who has one that is taken.

The default base lies below Linux's ephemeral ports (32768 …) and beside the range that gangs take on the embedded cluster (20000 …).
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from pathlib import Path

from local.stack.events import StackError
from local.stack.processes import listener

DEFAULT_BASE = 18080
NAMES = (
    "airflow",
    "s3",
    "kube_apiserver",
    "kubelet",
    "kube_controller_manager",
    "kube_scheduler",
    "s3_grpc",
    "s3_master",
    "s3_master_grpc",
    "s3_volume",
    "s3_volume_grpc",
    "s3_filer",
    "s3_filer_grpc",
)
"""In the order of the block: `airflow` has the base itself."""
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def plan(base: int = DEFAULT_BASE, overrides: Mapping[str, int] | None = None) -> dict[str, int]:
    """Name -> port. Raises StackError on an unknown name, a number that is no port, or one port for two."""
    ports = {name: base + offset for offset, name in enumerate(NAMES)}
    for name, port in (overrides or {}).items():
        if name not in ports:
            raise StackError(f"--port {name}={port}: there is no port named {name!r}; the names are {', '.join(NAMES)}")
        ports[name] = port
    taken: dict[int, str] = {}
    for name, port in ports.items():
        if not 1024 <= port <= 65535:
            raise StackError(f"port {port} for {name} is not between 1024 and 65535: choose another by --port {name}=N or --port-base N")
        if port in taken:
            raise StackError(f"port {port} is given to both {taken[port]} and {name}: choose another by --port {name}=N")
        taken[port] = name
    return ports


def base(option: str | None, environment: Mapping[str, str]) -> int:
    """The first port: the option's, else TRAINYARD_PORT_BASE's, else the default. Raises StackError naming which is no number."""
    name, text = ("--port-base", option) if option is not None else ("TRAINYARD_PORT_BASE", environment.get("TRAINYARD_PORT_BASE"))
    if not text and option is None:
        return DEFAULT_BASE
    try:
        return int(str(text))
    except ValueError as error:
        raise StackError(f"{name}={text}: expected a port number between 1024 and 65535, as in {name}={DEFAULT_BASE}") from error


def parse_override(text: str) -> tuple[str, int]:
    """`airflow=9090` -> ("airflow", 9090); raises StackError."""
    name, equals, number = text.partition("=")
    if not equals or not number.isdigit():
        raise StackError(f"--port {text}: expected NAME=NUMBER, as in --port airflow=9090")
    return name, int(number)


def ephemeral_overlap(ports: Mapping[str, int], source: Path = EPHEMERAL) -> str | None:
    """One line when the kernel may give some of these ports to any client that connects; None when not, or when it is not known."""
    try:
        first, last = map(int, source.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return None
    within = sorted(port for port in ports.values() if first <= port <= last)
    if not within:
        return None
    which = f"port {within[0]} lies" if len(within) == 1 else f"{len(within)} of the ports ({within[0]} … {within[-1]}) lie"
    return (
        f"{which} in the range {first}-{last} from which the kernel takes the ports of clients (net.ipv4.ip_local_port_range): one may be "
        f"taken at any moment; a --port-base below {first} is safe"
    )


def check_free(ports: Mapping[str, int], hosts: Mapping[str, str] | None = None) -> None:
    """Tries each port on its address.

    Args:
        ports: name -> port.
        hosts: name -> address, where that is not loopback.

    Raises:
        StackError: the first port that is taken, who has it if that can be known, and the option that changes it; or an address that is
            not this machine's.
    """
    for name, port in ports.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free for us
            try:
                host = (hosts or {}).get(name, "127.0.0.1")
                probe.bind((host, port))
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL:
                    raise StackError(f"{name} is to listen on {host}, which is no address of this machine") from error
                if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                    raise
                who = listener(port)
                owner = f" by pid {who[0]} ({who[1]})" if who else ""
                way_out = f"stop that, or choose another by --port {name}=N (this one) or --port-base N (all)"
                raise StackError(f"port {port} (for {name}) is taken{owner}: {way_out}") from error
