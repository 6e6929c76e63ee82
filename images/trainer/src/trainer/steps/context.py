"""What every step is given: the run spec, the two buckets and its working directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer import environment
from trainer import spec as specs
from trainer.spec import RunSpec
from trainer.storage import keys
from trainer.storage.client import connect
from trainer.storage.objects import Bucket


@dataclass(frozen=True)
class Context:
    """A step's world. Everything it writes locally lies under ``work``; everything that lasts, in S3."""

    spec: RunSpec
    data: Bucket
    """The tenant's data bucket: datasets, code, runs."""
    models: Bucket
    """The tenant's models bucket; only ``gate`` and ``export`` have the right to use it."""
    work: Path

    @property
    def dataset_root(self) -> str:
        dataset = self.spec.dataset
        return keys.dataset_root(dataset.name, dataset.version, dataset.layout)


def open_context(environ: Mapping[str, str] = os.environ, work: Path = Path()) -> Context:
    """The context of this process.

    Raises:
        UserError: the run spec cannot be read.
    """
    spec = specs.load(environment.run_spec_text(environ))
    client = connect(spec.storage)
    return Context(spec=spec, data=Bucket(client, spec.storage.bucket), models=Bucket(client, spec.storage.models_bucket), work=work)
