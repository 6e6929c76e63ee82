"""Where names outside of the cluster are asked for: the name servers of this machine, as far as pods can reach them."""

from __future__ import annotations

import ipaddress
from pathlib import Path

FILES = (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf"))
"""The second holds the servers behind systemd-resolved, which itself listens on loopback only."""
MOST = 3
"""As resolv.conf(5) has it."""


def upstream(files: tuple[Path, ...] = FILES) -> list[str]:
    """Addresses, those of loopback left out: a pod's loopback is its own. [] where there is none."""
    for file in files:
        try:
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        found = []
        for line in lines:
            words = line.split()
            if len(words) < 2 or words[0] != "nameserver":
                continue
            try:
                address = ipaddress.ip_address(words[1].split("%")[0])
            except ValueError:
                continue
            if address.version == 4 and not address.is_loopback and str(address) not in found:
                found.append(str(address))
        if found:
            return found[:MOST]
    return []
