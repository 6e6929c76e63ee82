"""The plan, and a worker's share in its own directory."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.s3 import S3Server
from trainer import spec as specs
from trainer.engine import plan as plans
from trainer.errors import DataError
from trainer.storage.client import connect
from trainer.storage.objects import Bucket


def document(**changes: Any) -> dict[str, Any]:
    files = [{"key": f"shards/{i}", "size": 3, "sha256": "0" * 64, "examples": 10} for i in range(3)]
    return {
        "version": 1,
        "train": files,
        "evaluation": [],
        "workers": [[0, 2], [1]],
        "train_examples": 30,
        "steps": 9,
    } | changes


MANIFEST: dict[str, Any] = {"values": {"features": {}}}


def test_shares_by_worker() -> None:
    plan = plans.parse(document(), MANIFEST, "plan")
    assert [file.key for file in plan.share(0)] == ["shards/0", "shards/2"]
    assert plan.names() == ["shards/00000.tfrecord", "shards/00001.tfrecord"], "the names of the worker with the most files"


@pytest.mark.parametrize(
    ("changes", "message"), [({"version": 2}, "version 2"), ({"workers": None}, "no plan: TypeError"), ({"steps": "x"}, "no plan")]
)
def test_what_is_no_plan_is_told(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=f"s3://b/plan.json.*{message}"):
        plans.parse(document(**changes), MANIFEST, "s3://b/plan.json")


@pytest.fixture
def bucket(s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    for name, value in s3_server.environ().items():
        monkeypatch.setenv(name, value)
    return Bucket(connect(specs.StorageSpec(s3_server.endpoint, s3_server.region, s3_bucket, s3_bucket)), s3_bucket)


def test_a_share_is_fetched_under_the_common_names_and_padded(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_bytes(b"records")
    file = bucket.upload(tmp_path / "a", "shards/7", examples=5)
    said: list[str] = []
    for _ in range(2):  # a restarted worker finds them there
        plans.fetch(bucket, [file], 2, said.append)
        assert (tmp_path / "shards/00000.tfrecord").read_bytes() == b"records"
        assert (tmp_path / "shards/00001.tfrecord").read_bytes() == b""
    assert said[0].startswith("1 shard file(s), 5 examples")


def test_bytes_that_are_not_those_of_the_plan_are_refused(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_bytes(b"records")
    file = bucket.upload(tmp_path / "a", "shards/7", examples=5)
    bucket.put("shards/7", b"RECORDS")
    with pytest.raises(DataError, match="shards/7 is not what was recorded"):
        plans.fetch(bucket, [file], 1, print)
    assert hashlib.sha256(b"RECORDS").hexdigest() != file.sha256
    assert not (tmp_path / "shards/00000.tfrecord").exists()
