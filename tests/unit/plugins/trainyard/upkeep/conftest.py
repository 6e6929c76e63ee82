"""The sample configuration, and settings made of variations of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from trainyard.settings import Settings, Tenant, load

CHECKOUT = Path(__file__).parents[5]


@pytest.fixture
def settings() -> Settings:
    return load(CHECKOUT / "config", environ={})


def with_tenants(settings: Settings, **tenants: Tenant | None) -> Settings:
    """``settings`` with tenants replaced, added, or (None) removed."""
    kept = {**settings.tenants, **tenants}
    return replace(settings, tenants={name: tenant for name, tenant in kept.items() if tenant is not None})


def changed(tenant: Tenant, **fields: object) -> Tenant:
    """The tenant with other values in some fields, checked again."""
    return Tenant.model_validate({**tenant.model_dump(), "name": tenant.name, **fields})
