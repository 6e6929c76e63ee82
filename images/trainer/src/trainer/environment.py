"""What a trainer container is told by its environment: the run spec, its place in the gang, its limits.

The names are those of ``trainyard/contract/environment.py``. This module imports nothing heavy: the
supervisor reads it before anything else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from trainer.errors import UserError

RUN_SPEC: Final = "TRAINYARD_RUN_SPEC"
CPU_MILLIS: Final = "TRAINYARD_CPU_MILLIS"
MEMORY_BYTES: Final = "TRAINYARD_MEMORY_BYTES"
POD_NAME: Final = "TRAINYARD_POD_NAME"
REPLICA: Final = "TRAINYARD_REPLICA"
ROLE: Final = "TRAINYARD_ROLE"
GANG: Final = "TRAINYARD_GANG"
COMPLETION_INDEX: Final = "JOB_COMPLETION_INDEX"
"""Set by Kubernetes in the pods of an Indexed Job; the chief's Job is not indexed."""
S3_ACCESS_KEY: Final = "AWS_ACCESS_KEY_ID"
S3_SECRET_KEY: Final = "AWS_SECRET_ACCESS_KEY"
S3_CA_BUNDLE: Final = "AWS_CA_BUNDLE"
"""Authorities of the S3 server, where they are not the public ones; boto3 reads it by itself."""
TERMINATION_LOG: Final = "TRAINYARD_TERMINATION_LOG"
SUPERVISOR_PID: Final = "TRAINYARD_SUPERVISOR_PID"
"""Told by a supervisor to its child, which asks the kernel to be killed when that process is gone."""
SAMPLES: Final = "TRAINYARD_SAMPLES"
"""Folder of the sample data files; default ``<sys.prefix>/share/samples``."""

CHIEF: Final = "chief"
PS: Final = "ps"
WORKER: Final = "worker"
ROLES: Final = (CHIEF, PS, WORKER)


@dataclass(frozen=True)
class Gang:
    """This replica's place in its gang."""

    generation: int
    role: str
    index: int
    addresses: Mapping[str, tuple[str, ...]]
    """``host:port`` by role and index, as TensorFlow's cluster spec wants them."""

    @property
    def replica(self) -> str:
        """``chief-0``, ``ps-1``, ``worker-3``: the folder of its log and its name in every message."""
        return f"{self.role}-{self.index}"

    @property
    def own_address(self) -> str:
        return self.addresses[self.role][self.index]

    @property
    def chief_address(self) -> str:
        return self.addresses[CHIEF][0]

    def peers(self) -> list[tuple[str, str]]:
        """``(replica name, host:port)`` of every other replica, in the order chief, ps, worker."""
        everyone = [(role, i, address) for role in ROLES for i, address in enumerate(self.addresses.get(role, ()))]
        return [(f"{role}-{i}", address) for role, i, address in everyone if (role, i) != (self.role, self.index)]


def run_spec_text(environ: Mapping[str, str] = os.environ) -> str:
    """The run spec's JSON text.

    Raises:
        UserError: the variable is absent.
    """
    text = environ.get(RUN_SPEC)
    if not text:
        raise UserError(
            f"environment variable {RUN_SPEC} is not set: a trainer container is told its run there; it is not meant to be started by hand"
        )
    return text


def gang(environ: Mapping[str, str] = os.environ) -> Gang | None:
    """This replica's gang, or None in a step's pod.

    Raises:
        UserError: the variables contradict each other.
    """
    role = environ.get(ROLE)
    if not role:
        return None
    if role not in ROLES:
        raise UserError(f"environment variable {ROLE} is {role!r}: expected one of {', '.join(ROLES)}")
    try:
        index = int(environ.get(COMPLETION_INDEX) or "0")
        document = json.loads(environ[GANG])
        generation = int(document["generation"])
        addresses = {str(name): tuple(str(address) for address in found) for name, found in document["addresses"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"environment variable {GANG} cannot be read ({type(error).__name__}: {error}); "
            'expected {"generation": n, "addresses": {"chief": [...], "ps": [...], "worker": [...]}}'
        ) from error
    if not 0 <= index < len(addresses.get(role, ())) or len(addresses.get(CHIEF, ())) != 1:
        raise UserError(f"environment variable {GANG} has no address for {role}-{index}, or not exactly one chief: {dict(addresses)}")
    return Gang(generation=generation, role=role, index=index, addresses=addresses)


def replica_name(environ: Mapping[str, str] = os.environ) -> str:
    """The folder of this pod's log: the gang's replica name, else what the step's pod was told."""
    member = gang(environ)
    return member.replica if member else (environ.get(REPLICA) or "unnamed")


def cpu_cores(environ: Mapping[str, str] = os.environ) -> float:
    """The pod's CPU limit in cores; the machine's own count when there is no limit. TensorFlow would count the host's."""
    try:
        millis = int(environ.get(CPU_MILLIS) or "0")
    except ValueError:
        millis = 0
    return millis / 1000 if millis > 0 else float(os.cpu_count() or 1)


def threads(environ: Mapping[str, str] = os.environ) -> int:
    """Threads that fit the CPU limit, at least one."""
    return max(1, round(cpu_cores(environ)))
