"""Step ``prepare``: the dataset's TFDS builder makes its version, which all runs of the tenant then share.

Reads the builder (ours, or from the user's package). Writes ``prepared/…`` (the TFDS folder) and ``prepared.json`` under the dataset's
layout. Two runs may prepare the same version at once: a builder must be deterministic, so both write the same bytes.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any, Final

from trainer import code
from trainer.errors import DataError, TrainerError
from trainer.spec import RunSpec
from trainer.steps.context import Context
from trainer.storage import keys, markers

STEP: Final = "prepare"
FORMAT: Final = 1
"""Raised when the same inputs would be prepared into other bytes."""


def inputs(spec: RunSpec) -> str:
    """Hash over what decides the prepared bytes."""
    dataset = spec.dataset
    return markers.digest(STEP, FORMAT, dataset.name, dataset.version, dataset.builder, dict(dataset.config), _code_of_builder(spec))


def _code_of_builder(spec: RunSpec) -> str | None:
    """The package's digest when the builder comes from the user's package: other code may make other data."""
    module = spec.dataset.builder.partition(":")[0]
    return spec.code.sha256 if spec.code is not None and module.partition(".")[0] == spec.code.package else None


def run(context: Context) -> None:
    """Does the step.

    Raises:
        UserError: the builder cannot be loaded.
        DataError: the version cannot be built, or a split that the run names is not in it.
    """
    spec, bucket, root = context.spec, context.data, context.dataset_root
    wanted = inputs(spec)
    step_key, dataset_key = keys.step_marker(spec.run, STEP), keys.prepared_marker(root)
    dataset = markers.done(bucket, dataset_key, wanted)
    if dataset is None:
        dataset = _prepare(context, dataset_key, wanted)
    else:
        print(f"prepare: dataset {spec.dataset.name} {spec.dataset.version} is already there: {dict(dataset.values['splits'])}")
    if markers.done(bucket, step_key, wanted) is None:
        markers.write(bucket, step_key, STEP, wanted, values={"splits": dataset.values["splits"]})


def _prepare(context: Context, key: str, wanted: str) -> markers.Marker:
    spec, bucket = context.spec, context.data
    code.install(bucket, spec.code, context.work)
    folder = context.work / "prepared"
    shutil.rmtree(folder, ignore_errors=True)
    print(f"prepare: building dataset {spec.dataset.name} {spec.dataset.version} with {spec.dataset.builder}", flush=True)
    built, splits = _build(spec, folder)
    target = keys.prepared(context.dataset_root)
    files = [bucket.upload(path, f"{target}{path.relative_to(built).as_posix()}") for path in sorted(built.rglob("*")) if path.is_file()]
    marker = markers.write(bucket, key, STEP, wanted, files=files, values={"splits": splits})
    shutil.rmtree(folder, ignore_errors=True)
    print(f"prepare: {sum(file.size for file in files)} bytes in {len(files)} files: {splits}")
    return marker


def _build(spec: RunSpec, folder: Path) -> tuple[Path, dict[str, int]]:
    """Runs the builder and gives the folder it made and the number of examples of each split."""
    from trainer.data.builders import load_builder
    from trainer.engine.quiet import quiet_import

    with quiet_import():
        import tensorflow  # noqa: F401 - TFDS writes records with it; imported here, its banners stay out of the log
    dataset = spec.dataset
    builder = load_builder(dataset.builder, dataset.version, dataset.config, folder)
    try:
        builder.download_and_prepare(download_dir=str(folder / "downloads"))
    except TrainerError:
        raise
    except Exception as error:
        # TFDS wraps what the builder raises; the person wants the builder's own words, with the place.
        cause: BaseException = error
        while cause.__cause__ is not None and not isinstance(cause.__cause__, TrainerError):
            cause = cause.__cause__
        if isinstance(cause.__cause__, TrainerError):
            raise cause.__cause__ from error
        import traceback

        traceback.print_exc(file=sys.stderr)
        raise DataError(f"dataset {dataset.name} {dataset.version} cannot be built by {dataset.builder}: {code.blame(cause)}") from error
    splits = {name: int(info.num_examples) for name, info in builder.info.splits.items()}
    for key, name in (("train_split", dataset.train_split), ("evaluation_split", dataset.evaluation_split)):
        _check_split(builder, key, name, splits, dataset.name)
    return Path(builder.data_dir), splits


def _check_split(builder: Any, key: str, name: str, splits: dict[str, int], dataset: str) -> None:
    try:
        empty = builder.info.splits[name].num_examples == 0
    except (KeyError, ValueError, AssertionError) as error:
        raise DataError(f"dataset.{key}: dataset {dataset} has no split {name!r}; it has {', '.join(splits)}") from error
    if empty:
        raise DataError(f"dataset.{key}: split {name!r} of dataset {dataset} is empty")
