"""A platform whose parts are killed while it trains."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos import STEPS
from tests.fixtures.platform import Platform, running


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.chaos)
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="package")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """Up; after the tests nothing of it may live."""
    long = {"training": {"epochs": None, "steps": STEPS, "checkpoint_every_steps": 500}}
    with running(tmp_path_factory.mktemp("chaos"), **{"digits-long": long}) as made:
        yield made
