"""What the machine must have: Linux, root, a few of Debian's packages, and what the kernel must be able to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from local.stack.events import StackError

PACKAGES: Mapping[str, str] = {
    # program: Debian's (and Ubuntu's) package
    "ip": "iproute2",
    "iptables": "iptables",
    "ipset": "ipset",
    "conntrack": "conntrack",
    "mount": "mount",
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "docker-registry": "docker-registry",
}
CNI_PACKAGE = "containernetworking-plugins"
CNI_PROGRAMS = ("bridge", "host-local", "loopback", "portmap")
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"), Path("/usr/libexec/cni"))
MODULES = ("br_netfilter", "overlay", "vxlan", "ip_set", "ip_tables", "xt_conntrack")
SEARCH = os.pathsep.join(("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"))
CONTROLLERS = ("cpu", "memory", "pids")


def find(program: str) -> str | None:
    """Where the program is; the sbin folders are looked in whatever the caller's PATH."""
    return shutil.which(program, path=SEARCH)


def cni_folder(folders: tuple[Path, ...] = CNI_FOLDERS) -> Path | None:
    """Where the CNI plugins are."""
    return next((folder for folder in folders if all((folder / name).exists() for name in CNI_PROGRAMS)), None)


def missing_packages(look: Callable[[str], str | None] = find, folders: tuple[Path, ...] = CNI_FOLDERS) -> list[str]:
    """Names of the packages that are to be installed, none twice."""
    found = {package for program, package in PACKAGES.items() if look(program) is None}
    if cni_folder(folders) is None:
        found.add(CNI_PACKAGE)
    return sorted(found)


def check_root(what: str) -> None:
    """Raises StackError where we are not root, or not on Linux."""
    if not sys.platform.startswith("linux"):
        raise StackError("the three-node cluster needs Linux: it is made of namespaces")
    if os.geteuid() != 0:
        raise StackError(f"{what} needs root, for namespaces, mounts and network interfaces: run it with sudo")


def check_packages() -> None:
    """Raises StackError naming all that is missing and the one command that installs it."""
    missing = missing_packages()
    if missing:
        raise StackError(
            f"not installed: {', '.join(missing)}. On Debian or Ubuntu: "
            f"apt-get update && apt-get install -y --no-install-recommends {' '.join(missing)}"
        )


def check_kernel(hierarchy: Path = Path("/sys/fs/cgroup")) -> None:
    """Raises StackError where cgroups are not there or lack a controller (as in a container without rights)."""
    unified = hierarchy / "cgroup.controllers"
    if unified.exists():
        there = unified.read_text(encoding="ascii").split()
        absent = [name for name in CONTROLLERS if name not in there]
    else:
        absent = [name for name in CONTROLLERS if not (hierarchy / name / "cgroup.procs").exists()]
    if absent:
        raise StackError(
            f"{hierarchy} has no controller {', '.join(absent)}: the kubelet cannot limit pods. Inside a container? "
            "This wants a machine, or a virtual one"
        )


def load_modules() -> None:
    """Asks for what is usually a module; where it is built in, or cannot be loaded, whoever misses it says so."""
    modprobe = find("modprobe")
    for module in MODULES if modprobe else ():
        subprocess.run([str(modprobe), "-q", module], capture_output=True)
