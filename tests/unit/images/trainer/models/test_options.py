"""A zoo model's config is checked key by key."""

from __future__ import annotations

from typing import Any

import pytest

from trainer.models.options import read

DEFAULTS: dict[str, Any] = {"units": 64, "dropout": 0.5, "filters": [1, 2]}


def test_defaults_are_overlaid() -> None:
    assert read("m", {"units": 3, "dropout": 0}, DEFAULTS) == {"units": 3, "dropout": 0.0, "filters": [1, 2]}
    assert DEFAULTS["units"] == 64


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"unit": 3}, "has no key 'unit': it knows dropout, filters, units"),
        ({"units": "3"}, "units is '3', must be int"),
        ({"units": True}, "units is True, must be int"),
        ({"dropout": "x"}, "dropout is 'x', must be float"),
        ({"filters": []}, r"filters is \[\], must be a list of integers > 0"),
        ({"filters": [0]}, r"filters is \[0\], must be a list of integers > 0"),
    ],
)
def test_what_does_not_fit_is_named(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read("m", config, DEFAULTS)
