"""Quantities: what is read, what is refused, and sums that lose nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.settings.quantities import cpu_millis, memory_bytes, times_cpu, times_memory


@pytest.mark.parametrize(("text", "millis"), [("750m", 750), ("2", 2000), ("1.5", 1500), ("0.001", 1)])
def test_cpu(text: str, millis: int) -> None:
    assert cpu_millis(text) == millis


@pytest.mark.parametrize("text", ["", "0", "0m", "-1", "1.2345", "1 ", "750M", "1e3", "½"])
def test_no_cpu(text: str) -> None:
    with pytest.raises(ValueError, match=r"cores|more than 0"):
        cpu_millis(text)


@pytest.mark.parametrize(("text", "size"), [("1Ki", 1024), ("512Mi", 512 * 2**20), ("2Gi", 2**31), ("1Ti", 2**40)])
def test_memory(text: str, size: int) -> None:
    assert memory_bytes(text) == size


@pytest.mark.parametrize("text", ["", "0Gi", "1", "2G", "2gb", "1.5Gi", "-1Gi", "1 Gi", "100m"])
def test_no_memory(text: str) -> None:
    with pytest.raises(ValueError, match=r"units|more than 0"):
        memory_bytes(text)


@given(st.integers(1, 10**6), st.sampled_from(["Ki", "Mi", "Gi", "Ti"]), st.integers(1, 10**4))
def test_times_is_exact(amount: int, unit: str, count: int) -> None:
    assert memory_bytes(times_memory(f"{amount}{unit}", count)) == memory_bytes(f"{amount}{unit}") * count
    assert cpu_millis(times_cpu(f"{amount}m", count)) == amount * count
