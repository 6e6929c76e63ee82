"""The samples' configuration, as everybody has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainyard.settings import Settings, load

CHECKOUT = Path(__file__).resolve().parents[5]


@pytest.fixture(scope="session")
def settings() -> Settings:
    return load(CHECKOUT / "config", cluster="embedded", environ={})
