"""Step ``gate``: whether the evaluated model is good enough to be exported.

Runs no user code and no TensorFlow, with the identity that may read the models bucket. A metric passes when it is a finite number, at
least ``gate.minimum`` (higher is better), and, with ``beat_champion``, higher than the present champion's. Without a threshold, or with
one that is not a finite number, nothing ever passes. A rejection is a normal end (outcome ``rejected``), unless ``on_reject: fail``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from trainer.errors import DataError, UserError
from trainer.spec import GateSpec
from trainer.steps import outcome
from trainer.steps.context import Context
from trainer.storage import keys, markers

STEP: Final = "gate"
ACCEPTED: Final = "accepted"
REJECTED: Final = "rejected"


@dataclass(frozen=True)
class Verdict:
    accepted: bool
    reason: str


def run(context: Context) -> None:
    """Does the step.

    Raises:
        DataError: the evaluation has not ended well, or is of another checkpoint than the training's last one.
        UserError: the verdict is no and the pipeline says ``on_reject: fail``.
    """
    spec, bucket = context.spec, context.data
    evaluated = markers.need(bucket, keys.step_marker(spec.run, "evaluate"), "evaluate")
    trained = markers.need(bucket, keys.step_marker(spec.run, "train"), "train")
    check_checkpoint(trained, evaluated)
    metrics = evaluated.values["metrics"]
    wanted = markers.digest(STEP, evaluated.digest, trained.digest, spec.gate.metric, spec.gate.minimum, spec.gate.beat_champion)
    key = keys.step_marker(spec.run, STEP)
    marker = markers.done(bucket, key, wanted)
    if marker is None:
        champion = context.models.get_json(keys.champion(spec.export.model)) if spec.gate.beat_champion else None
        if champion is not None and champion.get("run") == spec.run:
            champion = None  # this very run, asked again after its export
        verdict = judge(spec.gate, metrics, champion)
        value = metrics.get(spec.gate.metric)
        values = {
            "verdict": ACCEPTED if verdict.accepted else REJECTED,
            "reason": verdict.reason,
            "metric": spec.gate.metric,
            # JSON has no NaN.
            "value": value if _is_number(value) else None,
            "minimum": spec.gate.minimum,
        }
        if not verdict.accepted:
            outcome.write(context, outcome.REJECTED, verdict.reason, metrics)
        marker = markers.write(bucket, key, STEP, wanted, values=values)
    print(f"gate: {marker.values['verdict']}: {marker.values['reason']}")
    if marker.values["verdict"] != ACCEPTED and spec.gate.on_reject == "fail":
        raise UserError(f"the gate rejected the model and the pipeline says on_reject: fail: {marker.values['reason']}")


def judge(gate: GateSpec, metrics: dict[str, Any], champion: dict[str, Any] | None) -> Verdict:
    """The verdict over one evaluation; ``champion`` is the document of the present champion, None when there is none to beat."""
    value = metrics.get(gate.metric)
    if gate.metric not in metrics:
        return Verdict(False, f"there is no metric {gate.metric!r}; evaluated were {', '.join(sorted(metrics)) or 'none'}")
    if not _is_number(value):
        return Verdict(False, f"{gate.metric} is {value!r}, not a finite number")
    if not _is_number(gate.minimum):
        return Verdict(False, f"the minimum of {gate.metric} is {gate.minimum!r}: without a threshold nothing passes")
    if value < gate.minimum:
        return Verdict(False, f"{gate.metric} {value:.6g} is below the minimum {gate.minimum:.6g}")
    if gate.beat_champion and champion is not None:
        best = champion.get("metrics", {}).get(gate.metric)
        name = f"champion version {champion.get('version')}"
        if _is_number(best) and not value > best:
            return Verdict(False, f"{gate.metric} {value:.6g} does not beat {name} with {best:.6g}")
        if not _is_number(best):
            return Verdict(True, f"{gate.metric} {value:.6g} is at least {gate.minimum:.6g}; {name} has no {gate.metric} to beat")
    return Verdict(True, f"{gate.metric} {value:.6g} is at least {gate.minimum:.6g}")


def check_checkpoint(trained: markers.Marker, evaluated: markers.Marker) -> None:
    """A run is a success only when its metrics are those of the last checkpoint.

    Raises:
        DataError: they are of another one, or one of the two steps names none.
    """
    last, judged = trained.values.get("checkpoint_step"), evaluated.values.get("checkpoint_step")
    if last is None or last != judged:
        raise DataError(f"evaluated was checkpoint {judged}, and the training's last is {last}; clear evaluate to do it again")
    if not isinstance(evaluated.values.get("metrics"), dict):
        raise DataError("the marker of evaluate has no metrics; clear evaluate to do it again")


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
