"""One platform for all end-to-end tests, with pipelines beside the samples that make their cases quick."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.platform import Platform, running

UNREACHABLE = 0.9999


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="package")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """Up; after the tests nothing of it may live."""
    pipelines = {
        "digits-strict": {"gate": {"minimum": UNREACHABLE}},
        "digits-long": {"training": {"epochs": None, "steps": 6000, "checkpoint_every_steps": 200}},
        "digits-beside": {"tenant": "tabular"},
    }
    with running(tmp_path_factory.mktemp("e2e"), **pipelines) as made:
        yield made
