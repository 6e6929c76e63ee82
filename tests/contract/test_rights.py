"""The identities that ``sync`` makes have exactly the rights that the trainer's steps use: tried on a real server, by both sides' code."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixtures.run_spec import run_spec_document
from tests.fixtures.s3 import S3Server
from trainer import spec as specs
from trainer.errors import StorageError
from trainer.steps import export, gate
from trainer.steps.context import Context
from trainer.storage import keys, markers
from trainer.storage.client import connect
from trainer.storage.objects import Bucket, File
from trainyard.store import identities
from trainyard.store.opening import Credentials

As = Callable[[str], Context]


@pytest.fixture
def as_identity(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> As:
    """``as_identity("run")``: a step's context with the keys of that identity, as its pod would have them."""
    server = identities.IdentityServer(Credentials(s3_server.endpoint, s3_server.access_key, s3_server.secret_key), s3_server.region)
    buckets = identities.Buckets.of(f"t{secrets.token_hex(4)}", "vision")
    policies = {"run": identities.run_policy(buckets), "export": identities.export_policy(buckets)}
    for name in (buckets.data, buckets.models):
        server.make_bucket(name)
    document = run_spec_document(
        storage__endpoint=s3_server.endpoint, storage__bucket=buckets.data, storage__models_bucket=buckets.models, gate__beat_champion=True
    )
    made: dict[str, Context] = {}

    def context(identity: str) -> Context:
        if identity not in made:
            user = f"{buckets.data}-{identity}"
            server.make_user(user)
            server.set_policy(user, policies[identity])
            key = server.make_key(user, buckets.data)
            assert key.access_key
            assert key.secret_key
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", key.access_key)
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key.secret_key)
            spec = specs.load(json.dumps(document))
            client = connect(spec.storage)
            client.list_objects_v2(Bucket=buckets.data)  # binds the keys before the environment changes again
            made[identity] = Context(spec, Bucket(client, buckets.data), Bucket(client, buckets.models), tmp_path / identity)
            made[identity].work.mkdir()
        return made[identity]

    return context


def _trained_and_evaluated(context: Context) -> None:
    """What the steps before the gate leave, written by the identity that runs them."""
    run = context.spec.run
    markers.write(context.data, keys.step_marker(run, "train"), "train", "t", values={"checkpoint_step": 90})
    values = {"metrics": {"accuracy": 0.95}, "examples": 240, "checkpoint_step": 90}
    markers.write(context.data, keys.step_marker(run, "evaluate"), "evaluate", "e", values=values)
    context.data.put(keys.saved_model(run) + "saved_model.pb", b"graph")
    files = [File.of(keys.saved_model(run) + "saved_model.pb", b"graph")]
    markers.write(context.data, keys.saved_model_marker(run), "saved_model", "s", files=files)


def test_gate_and_export_work_with_the_export_identity(as_identity: As) -> None:
    _trained_and_evaluated(as_identity("run"))
    context = as_identity("export")
    gate.run(context)
    export.run(context)
    assert context.models.get(keys.model_version("digits-mlp", 1) + "saved_model.pb") == b"graph"
    result = context.data.get_json(keys.run_result(context.spec.run))
    assert result is not None
    assert result["outcome"] == "exported"


def test_the_run_identity_cannot_touch_models(as_identity: As) -> None:
    context = as_identity("run")
    _trained_and_evaluated(context)
    with pytest.raises(StorageError, match="AccessDenied"):
        gate.run(context)
    for act in (
        lambda: context.models.put("digits-mlp/1/saved_model.pb", b"bad"),
        lambda: context.models.get("digits-mlp/champion.json"),
        lambda: list(context.models.list("")),
    ):
        with pytest.raises(StorageError, match="AccessDenied"):
            act()


def test_the_export_identity_cannot_change_data_or_code(as_identity: As) -> None:
    context = as_identity("export")
    for key in ("datasets/d/1.0.0/l/prepared.json", "code/p/newest.json"):
        with pytest.raises(StorageError, match="AccessDenied"):
            context.data.put(key, b"bad")
    context.data.put(f"runs/{context.spec.run}/logs/export/x/00000000.log", b"its own log")
