"""What ``run --local`` is given: the spec that ``check`` would write, and links to exactly the shards of its version."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from trainyard.contract import keys
from trainyard.contract.run_spec import RunSpec

if TYPE_CHECKING:
    from conftest import World

VISION = "train_vision_digits-mlp"


def _ask(world: World, who: str = "alice", **body: Any) -> Any:
    return world.ask(who, "POST", f"/local/{VISION}", json=body)


def _shards(world: World) -> str:
    """Makes the shards of the newest version, as a first run would; gives their folder."""
    from trainyard.pipelines.spec import layout_hash
    from trainyard.settings import load

    dataset = load(world.config).datasets["digits"]
    root = keys.dataset_root("digits", "1.1.0", layout_hash(dataset, "1.1.0"))
    store, files = world.store(), []
    for index in range(2):
        key, data = keys.shard_file(root, "train", index, 2), b"shard %d" % index
        store.put(key, data)
        files.append({"key": key, "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "examples": 1})
    store.put("runs/other/spec.json", b"not a shard")
    outside = {"key": "runs/other/spec.json", "size": 11, "sha256": "0" * 64, "examples": 1}
    store.put_json(keys.manifest(root), {"version": 1, "files": [*files, outside], "values": {}})
    return root


def test_the_spec_and_the_shards_of_the_newest_version(world: World) -> None:
    root = _shards(world)
    answer = _ask(world, values={"epochs": 3, "batch_size": 16})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    spec = RunSpec.model_validate(found["spec"])
    assert (spec.dataset.version, spec.training.epochs, spec.training.batch_size, spec.code) == ("1.1.0", 3, 16, None)
    assert keys.dataset_root("digits", "1.1.0", spec.dataset.layout) == root
    assert [httpx.get(file["url"]).content for file in found["files"]] == [b"shard 0", b"shard 1"]
    assert [file["path"] for file in found["files"]] == ["train-00000-of-00002.tfrecord", "train-00001-of-00002.tfrecord"]


def test_a_version_without_shards_says_what_makes_them(world: World) -> None:
    _shards(world)
    answer = _ask(world, version="1.0.0")
    assert (answer.status_code, "`trainyard run digits-mlp --version 1.0.0`" in answer.json()["detail"]) == (404, True)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"version": "9.9.9"}, "no version 9.9.9"),
        ({"values": {"epoch": 1}}, "did you mean 'epochs'?"),
        ({"values": {"epochs": 1, "steps": 1}}, "both given"),
        ({"values": {"workers": 5}}, "workers"),
        ({"values": {"batch_size": "many"}}, "batch_size"),
    ],
)
def test_values_that_the_form_would_refuse(world: World, body: dict[str, Any], says: str) -> None:
    answer = _ask(world, **body)
    assert answer.status_code == 400
    assert says in answer.json()["detail"]


def test_a_viewer_gets_no_data(world: World) -> None:
    _shards(world)
    assert _ask(world, "victor").status_code == 403
    assert _ask(world, "carol").status_code == 403


def test_a_pipeline_that_airflow_has_not_read_is_pending_for_its_team_alone(world: World) -> None:
    del world.airflow.owners[VISION]
    mine = world.ask("alice", "GET", "/pipelines").json()
    assert (mine["pending"], [p["pipeline"] for p in mine["pipelines"]]) == (["digits-mlp"], ["mnist-cnn"])
    assert world.ask("carol", "GET", "/pipelines").json()["pending"] == []


def test_a_broken_file_is_told_to_its_tenant_alone(world: World) -> None:
    file = world.config / "pipelines" / "digits-mlp.yaml"
    file.write_text(file.read_text() + "colour: red\n")
    mine = world.ask("alice", "GET", "/pipelines").json()
    assert [p["pipeline"] for p in mine["pipelines"]] == ["mnist-cnn"]
    (problem,) = mine["problems"]
    assert problem.startswith("config/pipelines/digits-mlp.yaml:")
    assert "colour" in problem
    assert world.ask("carol", "GET", "/pipelines").json()["problems"] == []
    # All of a tenant's files broken is no reason to say nothing.
    for other in (world.config / "pipelines").glob("*.yaml"):
        other.write_text("tenant: vision\n")
    assert len(world.ask("alice", "GET", "/pipelines").json()["problems"]) >= 2
