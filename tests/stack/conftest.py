"""The local stack without Airflow, with real etcd, API server, kubelet and S3: its life as a program.

Airflow's parts are killed in mid-training by tests/chaos. Each process that tests starts stacks of its own, so files run side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stack.support import Stack


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Stack]:
    """A stack that is not up; after the test nothing of it lives."""
    stack = Stack(tmp_path / "var")
    yield stack
    stack.call("down")
    assert not stack.living()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One that is up; every case leaves it well."""
    one = Stack(tmp_path_factory.mktemp("stack") / "var")
    done = one.up()
    assert done.returncode == 0, done.stdout + done.stderr
    yield one
    done = one.call("down")
    assert done.returncode == 0, done.stderr
    assert not one.living(), "the stack is down"
    ports = [port for name, port in one.document()["ports"].items() if name.startswith("s3")]
    assert not [path for port in ports for path in Path("/tmp").glob(f"seaweedfs-*-{port}.sock")]
