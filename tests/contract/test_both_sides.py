"""The two sides share no Python: here, and only here, both are imported and held against each other."""

from __future__ import annotations

import dataclasses
import inspect
import json
import types
import typing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pydantic
import pytest

from tests.fixtures.run_spec import run_spec_document
from trainer import environment as trainer_environment
from trainer import exit_codes as trainer_exit_codes
from trainer import spec as trainer_spec
from trainer.errors import TrainerError, UserError
from trainer.storage import keys as trainer_keys
from trainyard.contract import environment, exit_codes, keys, names, run_spec
from trainyard.pipelines.form import Form
from trainyard.pipelines.spec import build_run_spec
from trainyard.settings import load

CONFIG = Path(__file__).parents[2] / "config"
SETTINGS = load(CONFIG)


# ------------------------------------------------------------------------------------------------------------------ exit codes


def test_both_have_the_same_exit_codes() -> None:
    def table(module: Any) -> dict[str, int]:
        return {code.name: int(code) for code in module.ExitCode}

    assert table(trainer_exit_codes) == table(exit_codes)
    assert {int(code) for code in trainer_exit_codes.FINAL} == {int(code) for code in exit_codes.FINAL}


@pytest.mark.parametrize("code", [*map(int, exit_codes.ExitCode), 1, 2, 139])
def test_both_say_the_same_of_a_code(code: int) -> None:
    assert trainer_exit_codes.describe(code) == exit_codes.describe(code)
    assert trainer_exit_codes.is_final(code) == exit_codes.is_final(code)


def test_every_error_of_the_trainer_has_a_code_of_the_table() -> None:
    def below(error: type[TrainerError]) -> set[type[TrainerError]]:
        return {error}.union(*(below(one) for one in error.__subclasses__()))

    for error in below(TrainerError) - {TrainerError}:
        assert int(error.exit_code) in {int(code) for code in exit_codes.ExitCode}, error


# ------------------------------------------------------------------------------------------------- environment, keys, names


def test_both_use_the_same_variables() -> None:
    told = {name: value for name, value in vars(environment).items() if name.isupper()}
    read = vars(trainer_environment)
    assert {name: read.get(name) for name in told} == told


def test_both_have_the_same_roles() -> None:
    assert trainer_environment.ROLES == names.ROLES
    member = trainer_environment.Gang(1, "worker", 3, {"chief": ("h:1",), "worker": ("h:2",) * 4})
    assert member.replica == names.replica_name("worker", 3)


def _functions(module: Any) -> dict[str, Any]:
    return {name: f for name, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == module.__name__}


SHARED = sorted(set(_functions(keys)) & set(_functions(trainer_keys)))


@pytest.mark.parametrize("name", SHARED)
def test_both_put_things_in_the_same_place(name: str) -> None:
    mine, theirs = _functions(trainer_keys)[name], _functions(keys)[name]
    parameters = inspect.signature(mine).parameters
    assert list(parameters) == list(inspect.signature(theirs).parameters)
    given = {key: 7 if parameter.annotation.startswith("int") else f"some-{key}/" for key, parameter in parameters.items()}
    assert mine(**given) == theirs(**given)
    optional = [key for key, parameter in parameters.items() if parameter.default is not inspect.Parameter.empty]
    assert mine(**{k: v for k, v in given.items() if k not in optional}) == theirs(**{k: v for k, v in given.items() if k not in optional})


def test_the_places_that_only_one_side_names_are_folders_of_the_others() -> None:
    """What is not compared by name above must lie where the other side says that such things lie."""
    assert len(SHARED) >= 20
    assert trainer_keys.prepared("r/") == "r/prepared/"
    assert keys.replica_failure("run", 2, "ps-0").startswith(trainer_keys.replica_failures("run", 2))
    assert trainer_keys.saved_model_marker("run") == keys.saved_model("run") + "marker.json"
    assert keys.model_claim("m", 1).startswith(trainer_keys.model_claims("m"))
    assert set(_functions(trainer_keys)) - set(SHARED) == {"prepared", "replica_failures", "saved_model_marker", "model_claims"}


# -------------------------------------------------------------------------------------------------------------------- run spec


@pytest.mark.parametrize("name", sorted(SETTINGS.pipelines))
@pytest.mark.parametrize("form", [{}, {"steps": 7, "batch_size": 8, "learning_rate": 1}, {"workers": 1, "parameter_servers": 1}])
def test_the_trainer_reads_the_spec_of_every_sample(name: str, form: dict[str, Any]) -> None:
    pipeline = SETTINGS.pipelines[name]
    own = not pipeline.model.build.startswith("trainer.")
    spec = build_run_spec(
        SETTINGS,
        pipeline,
        form=Form.read(form),
        dag_id=names.dag_id(pipeline.tenant, pipeline.name),
        run_id="manual__2026-01-02T03:04:05.678901+00:00",
        partition_key=None,
        requested=True,
        code=run_spec.CodeSpec(package="p", sha256="0" * 64, key=keys.code_wheel("p", "0" * 64)) if own else None,
        endpoint="http://127.0.0.1:8333",
        now=datetime.now(UTC),
    )
    read = trainer_spec.load(spec.to_json())
    assert _plain(dataclasses.asdict(read)) == _plain(spec.model_dump())


def test_the_tests_own_run_spec_is_one_for_both() -> None:
    document = run_spec_document()
    assert _plain(dataclasses.asdict(trainer_spec.load(json.dumps(document)))) == _plain(run_spec.RunSpec(**document).model_dump())


def test_both_have_the_same_fields_of_the_same_kinds() -> None:
    assert _shape_of_dataclass(trainer_spec.RunSpec) == _shape_of_model(run_spec.RunSpec)
    assert trainer_spec.VERSION == run_spec.VERSION


def _paths(document: dict[str, Any], before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for key, value in document.items():
        found.append((*before, key))
        if isinstance(value, dict) and key != "config":
            found += _paths(value, (*before, key))
    return found


@pytest.mark.parametrize("path", _paths(run_spec_document()), ids=".".join)
def test_what_one_refuses_the_other_does(path: tuple[str, ...]) -> None:
    """Every key: absent, of a kind that nothing has, and with an unknown key beside it."""
    for damage in ("absent", "odd", "beside"):
        document = run_spec_document()
        place: Any = document
        for key in path[:-1]:
            place = place[key]
        if damage == "absent":
            del place[path[-1]]
        elif damage == "odd":
            place[path[-1]] = [["nonsense"]]
        else:
            place[f"{path[-1]}_"] = 1
        if (path, damage) != (("version",), "absent"):  # the writer may leave it out: it is the writer's own
            with pytest.raises(pydantic.ValidationError):
                run_spec.RunSpec.model_validate(document)
        with pytest.raises(UserError):
            trainer_spec.load(json.dumps(document))


def _plain(value: Any) -> Any:
    """Moments as one text: both sides read them, each in its own type of UTC."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value


def _shape_of_dataclass(cls: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: _kind(hints[field.name]) for field in dataclasses.fields(cls)}


def _shape_of_model(cls: type[pydantic.BaseModel]) -> dict[str, Any]:
    return {name: _kind(field.annotation) for name, field in cls.model_fields.items()}


def _kind(hint: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return frozenset(json.dumps(_kind(one), default=str, sort_keys=True) for one in arguments)
    if origin is typing.Literal:
        # A document of another version is refused before its fields are looked at.
        return "int" if all(isinstance(one, int) for one in arguments) else sorted(arguments)
    if dataclasses.is_dataclass(hint):
        return _shape_of_dataclass(hint)
    if isinstance(hint, type) and issubclass(hint, pydantic.BaseModel):
        return _shape_of_model(hint)
    if origin is not None:
        return "object"
    return "datetime" if hint in (datetime, pydantic.AwareDatetime) else hint.__name__
