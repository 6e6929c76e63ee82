"""The models and the contract say the same; the defaults are the promised ones."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ValidationError

from trainyard.contract import run_spec
from trainyard.settings import Dataset, Gang, Pipeline, Training
from trainyard.settings.pipelines import Export, Gate
from trainyard.settings.tenants import Slot


@pytest.mark.parametrize(
    ("ours", "contract"),
    [
        (Training, run_spec.TrainingSpec),
        (Gang, run_spec.GangSpec),
        (Gate, run_spec.GateSpec),
        (Export, run_spec.ExportSpec),
        (Slot, run_spec.SlotSpec),
    ],
)
def test_a_section_goes_into_the_run_spec_as_it_is(ours: type[BaseModel], contract: type[BaseModel]) -> None:
    assert set(ours.model_fields) == set(contract.model_fields)


def test_a_training_that_is_valid_here_is_valid_there() -> None:
    training = Training(epochs=1, batch_size=1, learning_rate=0.1)
    assert run_spec.TrainingSpec(**training.model_dump()).epochs == 1
    gang = Gang(workers=2, parameter_servers=3, worker_slots=2, ps_slots=1, chief_slots=1)
    assert run_spec.GangSpec(**gang.model_dump()).slots == gang.slots == 2 * 2 + 3 + 1


def test_promised_defaults() -> None:
    assert Training(steps=1, batch_size=1, learning_rate=0.1).model_dump() == {
        "mode": "async",
        "epochs": None,
        "steps": 1,
        "batch_size": 1,
        "learning_rate": 0.1,
        "optimizer": "adam",
        "checkpoint_every_steps": 100,
        "start_deadline_s": 300,
        "deadline_s": 3600,
    }
    defaults = {name: field.default for name, field in Pipeline.model_fields.items() if not field.is_required()}
    assert defaults == {
        "image": None,
        "step_slots": 1,
        "evaluation_batch_size": 256,
        "priority": 0,
        "schedule": None,
        "retrain": "changed",
        "seed": 1,
    }
    assert Gate(minimum=0.5).model_dump() == {"metric": "accuracy", "minimum": 0.5, "beat_champion": False, "on_reject": "reject"}
    assert Dataset.model_fields["shard_tasks"].default == 1


def test_models_cannot_be_changed() -> None:
    gang = Gang(workers=1, parameter_servers=1)
    with pytest.raises(ValidationError):
        gang.workers = 2  # type: ignore[misc]


def test_one_worker_is_one_worker_in_the_arithmetic() -> None:
    assert Gang(workers=1, parameter_servers=1, worker_slots=2).arithmetic() == "1 worker × 2 + 1 PS × 1 + chief 1 = 4 slots"
