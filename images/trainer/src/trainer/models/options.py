"""Reading a zoo model's ``config``: defaults, known keys, one clear error. It knows no model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def read(model: str, config: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """``defaults`` overlaid with ``config``.

    Raises:
        ValueError: ``config`` has a key that ``defaults`` lacks, or a value of another type.
    """
    unknown = sorted(set(config) - set(defaults))
    if unknown:
        raise ValueError(f"model.config of `{model}` has no key {', '.join(map(repr, unknown))}: it knows {', '.join(sorted(defaults))}")
    options = dict(defaults)
    for key, value in config.items():
        wanted = type(defaults[key])
        # An integer is a fine float, but a bool is no integer though Python says so.
        fits = isinstance(value, wanted) and not (isinstance(value, bool) and wanted is not bool)
        if wanted is float and isinstance(value, int) and not isinstance(value, bool):
            value, fits = float(value), True
        if not fits:
            raise ValueError(f"model.config of `{model}`: {key} is {value!r}, must be {wanted.__name__} (default {defaults[key]!r})")
        if wanted is list and not (value and all(isinstance(v, int) and not isinstance(v, bool) and v > 0 for v in value)):
            raise ValueError(f"model.config of `{model}`: {key} is {value!r}, must be a list of integers > 0 (default {defaults[key]!r})")
        options[key] = value
    return options
