"""``config/schemas/`` is what the models say, and the samples are valid by it."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.fixtures.run_spec import run_spec_document
from trainyard.contract import zoo
from trainyard.settings.schemas import DEFAULT_FOLDER, MODELS, drift, main, write

CONFIG = DEFAULT_FOLDER.parent
TRAINER = CONFIG.parent / "images" / "trainer" / "src"
FILES = sorted(CONFIG.glob("*/*.yaml"))


def test_the_schemas_in_the_repository_are_up_to_date() -> None:
    assert drift(DEFAULT_FOLDER) == [], "run: python -m trainyard.settings.schemas --write"
    assert {path.name for path in DEFAULT_FOLDER.iterdir()} == {f"{name}.schema.json" for name in MODELS}


def test_drift_is_found_and_mended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(write(tmp_path)) == len(MODELS)
    (tmp_path / "tenant.schema.json").write_text("{}")
    assert main(["--check", "--dir", str(tmp_path)]) == 1
    assert "tenant.schema.json: differs from the models" in capsys.readouterr().err
    assert main(["--write", "--dir", str(tmp_path)]) == 0
    assert main(["--check", "--dir", str(tmp_path)]) == 0


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_sample_names_its_schema_and_is_valid_by_it(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# yaml-language-server: $schema=")
    schema = json.loads((path.parent / first.partition("=")[2]).read_text(encoding="utf-8"))
    # Editors see YAML's times as text, as JSON has them.
    document = json.loads(json.dumps(yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)))
    types = yaml.safe_load(path.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(_times_as_text(types, document))


def _times_as_text(value: object, text: object) -> object:
    if isinstance(value, dict) and isinstance(text, dict):
        return {key: _times_as_text(item, text[key]) for key, item in value.items()}
    if isinstance(value, list) and isinstance(text, list):
        return [_times_as_text(item, other) for item, other in zip(value, text, strict=True)]
    return value if value is None or isinstance(value, bool | int | float | str) else text


def test_the_schema_refuses_an_unknown_key() -> None:
    schema = json.loads((DEFAULT_FOLDER / "tenant.schema.json").read_text(encoding="utf-8"))
    document = yaml.safe_load((CONFIG / "tenants" / "vision.yaml").read_text(encoding="utf-8"))
    with pytest.raises(jsonschema.ValidationError, match="slotz"):
        jsonschema.Draft202012Validator(schema).validate({**document, "slotz": 1})


def test_a_run_spec_is_valid_by_its_schema() -> None:
    schema = json.loads((DEFAULT_FOLDER / "run_spec.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(run_spec_document())


@pytest.mark.parametrize("name", sorted(zoo.MODELS | zoo.BUILDERS))
def test_what_a_file_may_name_exists_on_the_trainers_side(name: str) -> None:
    module, _, attribute = name.partition(":")
    source = (TRAINER / Path(*module.split("."))).with_suffix(".py").read_text(encoding="utf-8")
    assert f"def {attribute}(" in source or f"class {attribute}(" in source
