"""The run spec: a value for everything, or one refusal with the arithmetic."""

from __future__ import annotations

import dataclasses
import datetime
from types import MappingProxyType
from typing import Any

import pytest

from trainyard.contract.run_spec import CodeSpec, RunSpec
from trainyard.errors import ConfigError, RefusedError
from trainyard.pipelines.form import Form
from trainyard.pipelines.spec import build_run_spec, choose_version, fingerprint, layout_hash, local_run_spec
from trainyard.settings import Dataset, Settings

NOW = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)


def build(settings: Settings, pipeline: str = "mnist-cnn", **changes: Any) -> RunSpec:
    values: dict[str, Any] = {
        "form": Form(), "dag_id": "train_vision_mnist-cnn", "run_id": "manual__1", "partition_key": None, "requested": True, "code": None,
        "endpoint": "http://s3:1", "now": NOW,
    }  # fmt: skip
    return build_run_spec(settings, settings.pipelines[pipeline], **(values | changes))


def test_the_pipelines_own_values(settings: Settings) -> None:
    spec = build(settings)
    pipeline = settings.pipelines["mnist-cnn"]
    assert spec.training.model_dump() == pipeline.training.model_dump()
    assert spec.gang.model_dump() == pipeline.gang.model_dump()
    assert spec.slot.model_dump() == settings.tenants["vision"].slot.model_dump()
    assert (spec.storage.bucket, spec.storage.models_bucket) == ("trainyard-vision", "trainyard-vision-models")
    assert spec.run.startswith("mnist-cnn-")
    assert RunSpec.model_validate_json(spec.to_json()) == spec


def test_what_a_person_gave_takes_its_place(settings: Settings) -> None:
    spec = build(settings, form=Form(steps=70, workers=1, batch_size=8, learning_rate=0.5))
    assert (spec.training.epochs, spec.training.steps) == (None, 70)
    assert (spec.gang.workers, spec.training.batch_size, spec.training.learning_rate) == (1, 8, 0.5)


def test_epochs_and_steps_together_are_refused(settings: Settings) -> None:
    with pytest.raises(RefusedError, match="epochs 3 and steps 70 are both given"):
        build(settings, form=Form(epochs=3, steps=70))


def test_more_than_the_tenant_has_is_refused_with_the_sum(settings: Settings) -> None:
    slots = settings.tenants["vision"].slots
    with pytest.raises(RefusedError, match=rf"4 workers × 1 \+ 9 PS × 1 \+ chief 1 = 14 slots; tenant vision has {slots}"):
        build(settings, form=Form(workers=4, parameter_servers=9))


def test_a_worker_without_a_shard_is_refused(settings: Settings) -> None:
    with pytest.raises(RefusedError, match="3 workers, and dataset digits has 2 shards"):
        build(settings, "digits-mlp", form=Form(workers=3))


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (Form(workers=0), "workers: 0: give at least 1"),
        (Form(learning_rate=0), "learning_rate: 0: give more than 0"),
        (Form(batch_size="8"), "batch_size: '8': give a whole number"),  # type: ignore[arg-type]
        (Form(epochs=1.5), "epochs: 1.5: give a whole number"),  # type: ignore[arg-type]
        (Form(workers=True), "workers: True: give a whole number"),
        (Form(mode="asink"), "mode: 'asink': .*async"),
    ],
)
def test_a_backfills_conf_is_held_to_the_forms_limits(settings: Settings, form: Form, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build(settings, form=form)


def dataset(settings: Settings) -> Dataset:
    return settings.datasets["digits"]


@pytest.mark.parametrize(
    ("key", "form", "version"), [(None, None, "1.1.0"), ("1.0.0", None, "1.0.0"), (None, "1.0.0", "1.0.0"), ("1.0.0", "1.0.0", "1.0.0")]
)
def test_the_version(settings: Settings, key: str | None, form: str | None, version: str) -> None:
    assert choose_version(dataset(settings), Form(dataset_version=form), key, NOW) == version


def test_key_and_form_that_differ_are_refused(settings: Settings) -> None:
    with pytest.raises(RefusedError, match=r"partition key says version 1\.0\.0 and the form says 1\.1\.0"):
        choose_version(dataset(settings), Form(dataset_version="1.1.0"), "1.0.0", NOW)


def test_the_newest_is_the_newest_by_then(settings: Settings) -> None:
    released = dataset(settings).versions["1.1.0"].released
    assert choose_version(dataset(settings), Form(), None, released - datetime.timedelta(seconds=1)) == "1.0.0"
    with pytest.raises(RefusedError, match=r"version 1\.1\.0 is released at"):
        choose_version(dataset(settings), Form(), "1.1.0", released - datetime.timedelta(seconds=1))
    with pytest.raises(RefusedError, match=r"its first version, 1\.0\.0, is released at"):
        choose_version(dataset(settings), Form(), None, datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC))
    with pytest.raises(ConfigError, match=r"no version 9\.9\.9"):
        choose_version(dataset(settings), Form(), "9.9.9", NOW)


def test_the_layout_changes_with_all_that_changes_the_files(settings: Settings) -> None:
    plain = dataset(settings)
    seen = {layout_hash(plain, "1.0.0"), layout_hash(plain, "1.1.0")}
    for change in ({"shards": 7}, {"shard_tasks": 2}, {"config": {"a": 1}}, {"builder": "x:Y"}, {"evaluation_split": "other"}):
        seen.add(layout_hash(plain.model_copy(update=change), "1.0.0"))
    assert len(seen) == 7
    assert layout_hash(plain.model_copy(update={"description": "other words"}), "1.0.0") in seen


def test_new_code_of_a_builder_is_a_new_layout_and_other_code_is_none(settings: Settings) -> None:
    plain = settings.datasets["digits"]
    own = plain.model_copy(update={"builder": "shop.data:Sales"})
    old, new = (CodeSpec(package="shop", sha256=digit * 64, key=f"code/shop/{digit * 64}.whl") for digit in "ab")
    assert layout_hash(own, "1.0.0", old) != layout_hash(own, "1.0.0", new)
    assert layout_hash(plain, "1.0.0", old) == layout_hash(plain, "1.0.0", new) == layout_hash(plain, "1.0.0")


def test_the_fingerprint_is_of_the_training_alone(settings: Settings) -> None:
    code = CodeSpec(package="p", sha256="a" * 64, key="k")
    plain = build(settings)
    same = build(settings, run_id="scheduled__2", requested=False, now=NOW + datetime.timedelta(days=1))
    assert fingerprint(plain) == fingerprint(same)
    others = [build(settings, form=Form(epochs=1)), build(settings, code=code), build(settings, form=Form(workers=1))]
    assert len({fingerprint(spec) for spec in (plain, *others)}) == 4


def test_more_slots_for_a_tenant_change_no_training(settings: Settings) -> None:
    tenant = settings.tenants["vision"]
    richer = tenant.model_copy(update={"slots": 99, "slot": tenant.slot.model_copy(update={"cpu": "4"})})
    other = dataclasses.replace(settings, tenants=MappingProxyType({**settings.tenants, "vision": richer}))
    assert fingerprint(build(other)) == fingerprint(build(settings))


def test_a_local_run_is_without_the_package_but_on_its_layout(settings: Settings) -> None:
    pipeline = settings.pipelines["digits-own"]
    own = settings.datasets["digits"].model_copy(update={"builder": "digits_model.data:Digits"})
    other = dataclasses.replace(settings, datasets=MappingProxyType({**settings.datasets, "digits": own}))
    code = CodeSpec(package="digits_model", sha256="a" * 64, key="code/digits_model/a.whl")
    spec = local_run_spec(other, pipeline, version="1.0.0", values={"epochs": 1}, code=code, run_id="local__1", now=NOW)
    assert spec.dataset.layout == layout_hash(own, "1.0.0", code) != layout_hash(own, "1.0.0")
    assert (spec.dataset.version, spec.training.epochs, spec.code) == ("1.0.0", 1, None)
