from __future__ import annotations

import math
from typing import Any

import pytest

from tests.unit.images.trainer.conftest import MakeContext
from trainer.errors import DataError, UserError
from trainer.spec import GateSpec
from trainer.steps import gate
from trainer.steps.context import Context
from trainer.storage import keys, markers


def _judge(metrics: dict[str, Any], minimum: float = 0.9, beat: bool = False, champion: dict[str, Any] | None = None) -> gate.Verdict:
    return gate.judge(GateSpec("accuracy", minimum, beat, "reject"), metrics, champion)


def _evaluated(context: Context, accuracy: Any = 0.95, step: int = 90, judged: int | None = None) -> None:
    run = context.spec.run
    markers.write(context.data, keys.step_marker(run, "train"), "train", "t", values={"checkpoint_step": step, "loss": 0.1})
    values = {"metrics": {"accuracy": accuracy, "loss": 0.2}, "examples": 240, "checkpoint_step": step if judged is None else judged}
    markers.write(context.data, keys.step_marker(run, "evaluate"), "evaluate", f"e{accuracy}", values=values)


def _verdict(context: Context) -> dict[str, Any]:
    marker = markers.read(context.data, keys.step_marker(context.spec.run, "gate"))
    assert marker is not None
    return dict(marker.values)


@pytest.mark.parametrize(("value", "accepted"), [(0.95, True), (0.9, True), (1, True), (0.8999, False), (0, False), (-1.0, False)])
def test_the_minimum(value: float, accepted: bool) -> None:
    assert _judge({"accuracy": value}).accepted is accepted


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None, "0.99", True])
def test_what_is_no_finite_number_never_passes(value: Any) -> None:
    assert not _judge({"accuracy": value}, minimum=-math.inf if value is math.nan else 0.0).accepted


@pytest.mark.parametrize("minimum", [math.nan, -math.inf, None])
def test_without_a_threshold_nothing_passes(minimum: Any) -> None:
    verdict = _judge({"accuracy": 1.0}, minimum=minimum)
    assert not verdict.accepted
    assert "without a threshold nothing passes" in verdict.reason


def test_a_metric_that_was_not_evaluated_is_named() -> None:
    assert _judge({"loss": 0.1, "auc": 1.0}).reason == "there is no metric 'accuracy'; evaluated were auc, loss"


@pytest.mark.parametrize(("value", "accepted"), [(0.96, True), (0.95, False), (0.94, False)])
def test_the_champion_must_be_beaten(value: float, accepted: bool) -> None:
    champion = {"version": 4, "metrics": {"accuracy": 0.95}}
    assert _judge({"accuracy": value}, beat=True, champion=champion).accepted is accepted
    assert _judge({"accuracy": value}, beat=False, champion=champion).accepted


def test_the_first_of_its_kind_has_no_champion_to_beat() -> None:
    assert _judge({"accuracy": 0.95}, beat=True, champion=None).accepted
    assert not _judge({"accuracy": 0.5}, beat=True, champion=None).accepted


def test_an_accepted_model(make_context: MakeContext) -> None:
    context = make_context()
    _evaluated(context)
    gate.run(context)
    assert _verdict(context) == {
        "verdict": "accepted", "reason": "accuracy 0.95 is at least 0.9", "metric": "accuracy", "value": 0.95, "minimum": 0.9,
    }  # fmt: skip
    assert context.data.get_json(keys.run_result(context.spec.run)) is None


def test_a_rejected_model_is_a_normal_end(make_context: MakeContext) -> None:
    context = make_context()
    _evaluated(context, 0.5)
    gate.run(context)
    assert _verdict(context)["verdict"] == "rejected"
    result = context.data.get_json(keys.run_result(context.spec.run))
    assert result is not None
    assert result.pop("ended")
    assert result == {
        "version": 1, "outcome": "rejected", "reason": "accuracy 0.5 is below the minimum 0.9", "metrics": {"accuracy": 0.5, "loss": 0.2},
        "model": None, "model_version": None, "dataset_version": "1.0.0",
    }  # fmt: skip


def test_a_nan_is_rejected_and_its_marker_can_be_read(make_context: MakeContext) -> None:
    context = make_context()
    _evaluated(context, math.nan)
    gate.run(context)
    assert (_verdict(context)["verdict"], _verdict(context)["value"]) == ("rejected", None)


def test_on_reject_fail_is_red_each_time(make_context: MakeContext) -> None:
    context = make_context(gate__on_reject="fail")
    _evaluated(context, 0.5)
    for _ in range(2):
        with pytest.raises(UserError, match=r"on_reject: fail: accuracy 0\.5 is below the minimum 0\.9"):
            gate.run(context)


def test_a_decided_gate_stays_decided_until_the_evaluation_changes(make_context: MakeContext) -> None:
    context = make_context(gate__beat_champion=True)
    _evaluated(context, 0.95)
    gate.run(context)
    context.models.put_json(keys.champion("digits-mlp"), {"run": "other", "version": 2, "metrics": {"accuracy": 0.99}})
    gate.run(context)
    assert _verdict(context)["verdict"] == "accepted"
    _evaluated(context, 0.96)
    gate.run(context)
    assert _verdict(context)["verdict"] == "rejected"
    assert "champion version 2 with 0.99" in _verdict(context)["reason"]


def test_a_run_does_not_compete_with_itself(make_context: MakeContext) -> None:
    context = make_context(gate__beat_champion=True)
    _evaluated(context, 0.95)
    context.models.put_json(keys.champion("digits-mlp"), {"run": context.spec.run, "version": 1, "metrics": {"accuracy": 0.95}})
    gate.run(context)
    assert _verdict(context)["verdict"] == "accepted"


def test_metrics_of_another_checkpoint_are_refused(make_context: MakeContext) -> None:
    context = make_context()
    _evaluated(context, step=90, judged=60)
    with pytest.raises(DataError, match="evaluated was checkpoint 60, and the training's last is 90"):
        gate.run(context)


def test_without_an_evaluation_there_is_no_verdict(make_context: MakeContext) -> None:
    with pytest.raises(DataError, match="evaluate has not ended well"):
        gate.run(make_context())
