"""Where everything lies in S3: the trainer's own spelling of ``trainyard/contract/keys.py`` (which describes the layout).

Each function gives a key without bucket; folders end in ``/``. A contract test compares every function with its twin.
"""

from __future__ import annotations


def dataset_root(dataset: str, version: str, layout: str) -> str:
    return f"datasets/{dataset}/{version}/{layout}/"


def prepared(root: str) -> str:
    """Folder of what the dataset's builder made (a TFDS folder)."""
    return f"{root}prepared/"


def prepared_marker(root: str) -> str:
    return f"{root}prepared.json"


def shard_marker(root: str, index: int) -> str:
    return f"{root}shard-{index:05d}.json"


def shard_file(root: str, split: str, index: int, count: int) -> str:
    return f"{root}shards/{split}-{index:05d}-of-{count:05d}.tfrecord"


def manifest(root: str) -> str:
    return f"{root}manifest.json"


def run_root(run: str) -> str:
    return f"runs/{run}/"


def run_result(run: str) -> str:
    return f"{run_root(run)}result.json"


def plan(run: str) -> str:
    return f"{run_root(run)}plan.json"


def progress(run: str) -> str:
    return f"{run_root(run)}progress.json"


def step_marker(run: str, step: str, index: int | None = None) -> str:
    name = step if index is None else f"{step}-{index}"
    return f"{run_root(run)}steps/{name}.json"


def generation(run: str) -> str:
    return f"{run_root(run)}generation.json"


def generation_result(run: str, number: int) -> str:
    return f"{run_root(run)}generations/{number}/result.json"


def replica_failures(run: str, number: int) -> str:
    """Folder of the replicas of a generation that failed for good."""
    return f"{run_root(run)}generations/{number}/failed/"


def replica_failure(run: str, number: int, replica: str) -> str:
    return f"{replica_failures(run, number)}{replica}.json"


def checkpoints(run: str) -> str:
    return f"{run_root(run)}checkpoints/"


def checkpoint(run: str, step: int) -> str:
    return f"{checkpoints(run)}{step:010d}/"


def logs(run: str, replica: str | None = None) -> str:
    return f"{run_root(run)}logs/" + (f"{replica}/" if replica else "")


def saved_model(run: str) -> str:
    """Folder that ``evaluate`` writes and ``export`` copies; its ``marker.json`` is written last."""
    return f"{run_root(run)}saved_model/"


def saved_model_marker(run: str) -> str:
    return f"{saved_model(run)}marker.json"


def model_version(model: str, version: int) -> str:
    return f"{model}/{version}/"


def model_marker(model: str, version: int) -> str:
    return f"{model_version(model, version)}marker.json"


def model_claims(model: str) -> str:
    """Folder of the claims: the one way a version number is taken."""
    return f"{model}/claims/"


def model_claim(model: str, version: int) -> str:
    return f"{model_claims(model)}{version}.json"


def champion(model: str) -> str:
    return f"{model}/champion.json"
