"""JSON Schemas of the configuration files and of the run spec, generated from the models: ``python -m trainyard.settings.schemas``.

Editors complete and check from them (``# yaml-language-server: $schema=…`` in a file's first line). They say less than the models:
what lies between two keys or two files only ``trainyard validate`` knows.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from trainyard.contract.run_spec import RunSpec
from trainyard.settings import defaults
from trainyard.settings.clusters import ClusterProfile
from trainyard.settings.datasets import Dataset
from trainyard.settings.pipelines import Pipeline
from trainyard.settings.tenants import Tenant

MODELS: Final[dict[str, type[BaseModel]]] = {
    "tenant": Tenant,
    "dataset": Dataset,
    "pipeline": Pipeline,
    "cluster": ClusterProfile,
    "run_spec": RunSpec,
}
"""``<name>.schema.json`` of each."""
DEFAULT_FOLDER: Final = Path(__file__).resolve().parents[3] / "config" / "schemas"
"""Of a checkout."""


def render(name: str) -> str:
    """The text of ``<name>.schema.json``."""
    schema: dict[str, Any] = MODELS[name].model_json_schema()
    if name != "run_spec":
        # A file's name is its stem: the key does not exist in the file.
        schema["properties"].pop("name")
        schema["required"].remove("name")
    if name == "pipeline":
        _require_no_defaults(schema)
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=2, ensure_ascii=False) + "\n"


def _require_no_defaults(schema: dict[str, Any]) -> None:
    """A key that the tenant's ``defaults`` may give is not asked for in the pipeline's own file."""
    for section, keys in (("Training", defaults.TRAINING), ("Gang", defaults.GANG), ("Gate", defaults.GATE)):
        part = schema["$defs"][section]
        part["required"] = [key for key in part.get("required", ()) if key not in keys]
        if not part["required"]:
            del part["required"]
            schema["required"].remove(section.lower())


def drift(folder: Path) -> list[str]:
    """Files under ``folder`` that are not what the models say."""
    stale = []
    for name in MODELS:
        path = folder / f"{name}.schema.json"
        if not path.is_file() or path.read_text(encoding="utf-8") != render(name):
            stale.append(path.name)
    return stale


def write(folder: Path) -> list[str]:
    """Bring ``folder`` up to date and return the files that were not."""
    stale = drift(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in stale:
        (folder / name).write_text(render(name.removesuffix(".schema.json")), encoding="utf-8")
    return stale


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 if ``--check`` finds drift."""
    parser = argparse.ArgumentParser(prog="python -m trainyard.settings.schemas", description="JSON Schemas of configuration and run spec")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="write those that differ")
    action.add_argument("--check", action="store_true", help="name those that differ, and fail if there are any")
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="default: config/schemas of this checkout")
    options = parser.parse_args(arguments)
    if options.write:
        for name in write(options.dir):
            print(f"wrote {name}")
        return 0
    stale = drift(options.dir)
    for name in stale:
        print(f"{options.dir / name}: differs from the models: run python -m trainyard.settings.schemas --write", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
