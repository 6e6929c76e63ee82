"""The form: limits from the tenant and the dataset, and what a person gave."""

from __future__ import annotations

import pytest

from trainyard.errors import ConfigError
from trainyard.pipelines.form import Form, fields, gang_of
from trainyard.settings import Settings


def test_limits_are_the_tenants_and_the_datasets(settings: Settings) -> None:
    pipeline = settings.pipelines["mnist-cnn"]
    tenant, dataset = settings.tenant_of(pipeline), settings.dataset_of(pipeline)
    made = fields(pipeline, tenant, dataset)
    assert made["workers"].schema["minimum"] == 1, "workers: 0 is refused before there is a run"
    assert made["workers"].schema["maximum"] == min(dataset.shards, tenant.slots - 2)
    assert made["parameter_servers"].schema["maximum"] == tenant.slots - 2
    assert made["dataset_version"].schema["enum"] == ["newest", *reversed([name for name, _ in dataset.by_release()])]
    assert {name: field.default for name, field in made.items() if name in ("epochs", "steps", "workers")} == {
        "epochs": pipeline.training.epochs,
        "steps": None,
        "workers": 2,
    }


def test_every_field_has_help_and_is_a_field_of_the_run(settings: Settings) -> None:
    for pipeline in settings.pipelines.values():
        made = fields(pipeline, settings.tenant_of(pipeline), settings.dataset_of(pipeline))
        assert set(made) == set(Form.__dataclass_fields__)
        assert all(field.help.endswith(".") and field.title for field in made.values())


def test_what_was_not_given_is_not_there() -> None:
    assert Form.read({}) == Form()
    assert Form.read({"dataset_version": "newest", "epochs": None, "workers": 3}) == Form(workers=3)


def test_an_unknown_field_says_which_was_meant() -> None:
    with pytest.raises(ConfigError, match=r"the form has no field 'epoch'.*epochs"):
        Form.read({"epoch": 3})


SHAPE = {"workers": 2, "parameter_servers": 1, "chief_slots": 1, "ps_slots": 2, "worker_slots": 3}


@pytest.mark.parametrize(
    ("given", "slots"),
    [
        (None, 9),
        ({}, 9),
        ({"workers": 4}, 15),
        ({"parameter_servers": 3, "workers": 1}, 10),
        # What is no number is refused by check; the scheduler must not fail on it.
        ({"workers": "4"}, 9),
        ({"workers": True}, 9),
        ({"workers": 0}, 9),
        ({"workers": None}, 9),
    ],
)
def test_slots_of_a_gang(given: dict[str, object] | None, slots: int) -> None:
    assert gang_of(SHAPE, given) == slots
