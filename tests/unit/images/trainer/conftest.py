"""A step's world for tests: the run spec as changed, two fresh buckets of the real S3 server, a folder of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.run_spec import run_spec_document
from tests.fixtures.s3 import S3Server
from trainer import spec as specs
from trainer.steps.context import Context
from trainer.storage.objects import Bucket

MakeContext = Callable[..., Context]


@pytest.fixture
def make_context(s3_server: S3Server, tmp_path: Path) -> MakeContext:
    """``make_context(gang__workers=2)``: contexts of one test share their buckets; each has a folder of its own."""
    data, models = Bucket(s3_server.client(), s3_server.new_bucket("data")), Bucket(s3_server.client(), s3_server.new_bucket("models"))
    made = 0

    def make(**changes: Any) -> Context:
        nonlocal made
        made += 1
        work = tmp_path / f"work-{made}"
        work.mkdir()
        document = run_spec_document(
            storage__endpoint=s3_server.endpoint, storage__bucket=data.name, storage__models_bucket=models.name, **changes
        )
        return Context(spec=specs.load(json.dumps(document)), data=data, models=models, work=work)

    return make


@pytest.fixture
def bucket(s3_server: S3Server, s3_bucket: str) -> Bucket:
    """A fresh bucket."""
    return Bucket(s3_server.client(), s3_bucket)
