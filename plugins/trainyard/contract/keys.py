"""Where everything lies in S3. Each function gives a key without bucket; folders end in ``/``.

Data bucket::

    datasets/<d>/<version>/<layout>/prepared/…           what the dataset's builder made (TFDS folder)
                                   /prepared.json        marker of it
                                   /shards/<split>-00003-of-00008.tfrecord
                                   /shard-00001.json     marker of one shard task
                                   /manifest.json        marker of the whole layout, written by ``plan``
    code/<package>/<sha256>.whl  ·  code/<package>/newest.json
    pipelines/<p>/admitted.json                      the pipeline's last runs and what each was to train, the newest first
    runs/<run>/spec.json  result.json  plan.json  progress.json
              /steps/<step>[-<index>].json               marker of a step
              /generation.json                           the current generation (compare-and-swap)
              /generations/<n>/result.json               how it ended, written by the chief's supervisor
              /generations/<n>/reported.json             its bad end was told to Airflow: the next try begins anew
              /generations/<n>/failed/<replica>.json     a replica that failed for good
              /checkpoints/<step:010d>/…  marker.json    the marker last
              /logs/<replica>/<started>-<pod>/<n:08d>.log
              /saved_model/…                             written by ``evaluate``, copied by ``export``

Models bucket::

    <model>/<version>/saved_model.pb variables/… marker.json
    <model>/claims/<version>.json  ·  <model>/champion.json
"""

from __future__ import annotations

from typing import Final

RUNS: Final = "runs/"
"""What belongs to runs; all else in a data bucket outlives them."""


def dataset_root(dataset: str, version: str, layout: str) -> str:
    return f"datasets/{dataset}/{version}/{layout}/"


def prepared_marker(root: str) -> str:
    return f"{root}prepared.json"


def shard_marker(root: str, index: int) -> str:
    return f"{root}shard-{index:05d}.json"


def shard_file(root: str, split: str, index: int, count: int) -> str:
    return f"{root}shards/{split}-{index:05d}-of-{count:05d}.tfrecord"


def manifest(root: str) -> str:
    return f"{root}manifest.json"


def code_wheel(package: str, sha256: str) -> str:
    return f"code/{package}/{sha256}.whl"


def code_newest(package: str) -> str:
    return f"code/{package}/newest.json"


def admitted(pipeline: str) -> str:
    return f"pipelines/{pipeline}/admitted.json"


def run_root(run: str) -> str:
    return f"{RUNS}{run}/"


def spec(run: str) -> str:
    return f"{run_root(run)}spec.json"


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


def generation_reported(run: str, number: int) -> str:
    return f"{run_root(run)}generations/{number}/reported.json"


def replica_failure(run: str, number: int, replica: str) -> str:
    return f"{run_root(run)}generations/{number}/failed/{replica}.json"


def checkpoints(run: str) -> str:
    return f"{run_root(run)}checkpoints/"


def checkpoint(run: str, step: int) -> str:
    return f"{checkpoints(run)}{step:010d}/"


def logs(run: str, replica: str | None = None) -> str:
    return f"{run_root(run)}logs/" + (f"{replica}/" if replica else "")


def saved_model(run: str) -> str:
    return f"{run_root(run)}saved_model/"


def model_version(model: str, version: int) -> str:
    return f"{model}/{version}/"


def model_marker(model: str, version: int) -> str:
    return f"{model_version(model, version)}marker.json"


def model_claim(model: str, version: int) -> str:
    return f"{model}/claims/{version}.json"


def champion(model: str) -> str:
    return f"{model}/champion.json"
