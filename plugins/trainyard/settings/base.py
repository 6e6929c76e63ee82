"""What all settings models share: frozen, strict, and the types of names.

Strict means that ``"3"`` is no number and ``1`` no truth value: a file says what it means. Defaults and limits stand beside their
field; the docstring under a field is its description in the generated JSON Schema, so an editor shows it.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from trainyard.contract.names import NAME_PATTERN, TENANT_PATTERN
from trainyard.settings.quantities import cpu_millis, memory_bytes

MODULE_ATTRIBUTE_PATTERN: Final = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"
PACKAGE_PATTERN: Final = r"^[a-z_][a-z0-9_]{0,62}$"
VERSION_PATTERN: Final = r"^(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})$"
"""MAJOR.MINOR.PATCH, as tensorflow_datasets has them."""


class Section(BaseModel):
    """Base of every model read from YAML: one mapping of a file."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True, hide_input_in_errors=True
    )


def _check_cpu(text: str) -> str:
    cpu_millis(text)
    return text


def _check_memory(text: str) -> str:
    memory_bytes(text)
    return text


Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
TenantName = Annotated[str, StringConstraints(pattern=TENANT_PATTERN)]
ModuleAttribute = Annotated[str, StringConstraints(pattern=MODULE_ATTRIBUTE_PATTERN)]
Version = Annotated[str, StringConstraints(pattern=VERSION_PATTERN)]
Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Image = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-zA-Z0-9._/:@-]*$")]
Cpu = Annotated[str, AfterValidator(_check_cpu), Field(examples=["750m", "2"])]
Memory = Annotated[str, AfterValidator(_check_memory), Field(examples=["2Gi"])]
