"""Kubernetes quantities as Trainyard's files may write them: a strict part of what Kubernetes accepts.

Kubernetes reads ``1G`` (10^9), ``1Gi`` (2^30) and even ``1m`` bytes of memory; the first and the last are nearly always slips of the
pen, so memory here is whole ``Ki``, ``Mi``, ``Gi`` or ``Ti``, and CPU is cores (``2``, ``1.5``) or thousandths (``750m``).
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

_CPU: Final = re.compile(r"^(?:(\d+)m|(\d+(?:\.\d{1,3})?))$")
_MEMORY: Final = re.compile(r"^(\d+)(Ki|Mi|Gi|Ti)$")
_UNITS: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def cpu_millis(text: str) -> int:
    """``750m`` → 750, ``1.5`` → 1500: thousandths of a core.

    Raises:
        ValueError: not such a quantity, or none at all of it.
    """
    match = _CPU.match(text)
    if match is None:
        raise ValueError("give cores as 2, 1.5 or 750m")
    millis = int(match[1]) if match[1] else int(Decimal(match[2]) * 1000)
    if millis == 0:
        raise ValueError("must be more than 0")
    return millis


def memory_bytes(text: str) -> int:
    """``2Gi`` → 2147483648 bytes.

    Raises:
        ValueError: not such a quantity (with the way out when a unit of 1000 was written), or none at all of it.
    """
    match = _MEMORY.match(text)
    if match is None:
        decimal = re.match(r"^(\d+)\s*([kKMGT])[bB]?$", text)
        hint = f"; did you mean {decimal[1]}{decimal[2].upper()}i?" if decimal else ""
        raise ValueError(f"give bytes with one of the units Ki, Mi, Gi, Ti, as 512Mi or 2Gi{hint}")
    size = int(match[1]) * _UNITS[match[2]]
    if size == 0:
        raise ValueError("must be more than 0")
    return size


def times_cpu(text: str, count: int) -> str:
    """``count`` times a CPU quantity, in thousandths: ``times_cpu("750m", 2) == "1500m"``."""
    return f"{cpu_millis(text) * count}m"


def times_memory(text: str, count: int) -> str:
    """``count`` times a memory quantity, in its own unit: ``times_memory("2Gi", 3) == "6Gi"``."""
    match = _MEMORY.match(text)
    memory_bytes(text)
    assert match is not None
    return f"{int(match[1]) * count}{match[2]}"
