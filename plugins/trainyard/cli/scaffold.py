"""``trainyard init``: a configuration repository that passes ``trainyard validate`` as it is, with a model package to begin from.

The texts below are the files; ``{tenant}`` and the like are filled in. Everything that a company would decide stands in them, with a
comment where the choice is not plain.
"""

from __future__ import annotations

from pathlib import Path

from trainyard.contract.names import PLATFORM_TEAM
from trainyard.errors import ConfigError

PIPELINE = "digits"
PACKAGE = "digits_model"

_FILES = {
    "README.md": """\
# Our models on Trainyard

`config/` says who may train what, on which data, and how good a model must be; `{package}/` is the code of a model.

`trainyard` is the program of that name in a checkout of Trainyard; from here, once a shell:

    alias trainyard=/path/to/the/checkout/trainyard
    export TRAINYARD_CONFIG=$PWD/config

Then:

    trainyard validate .                        # is everything in order?
    trainyard up                                # a platform on this machine (or `trainyard login URL` for one that is there)
    trainyard run {pipeline}                      # prepares the data, publishes {package}/ and trains it
    trainyard model get {pipeline}                # the exported model
    trainyard run {pipeline} --local              # while you change the model: one process, on the data that the first run prepared
""",
    "config/tenants/{tenant}.yaml": """\
owner: {tenant}
contact: {tenant}@example.com
# One number limits everything: pods of this tenant use at most so many slots at once.
slots: 4
slot: {{cpu: 750m, memory: 2Gi, scratch: 1Gi}}
# Login names in Airflow: `user` starts and stops runs, `viewer` reads.
members: {{alex: user}}
""",
    "config/datasets/digits.yaml": """\
description: 8×8 images of handwritten digits
builder: trainer.data.digits:Digits
# A run is for one version. A new version of your data is a new line here.
versions:
  "1.0.0": {{released: 2026-01-01T00:00:00Z}}
  "1.1.0": {{released: 2026-02-01T00:00:00Z}}
train_split: train
evaluation_split: test
# Files of the train split: at least as many as the most workers that will read them.
shards: 2
shard_tasks: 1
""",
    "config/pipelines/{pipeline}.yaml": """\
tenant: {tenant}
dataset: digits
description: A small network that reads handwritten digits
model:
  build: {package}.model:build
  package: {package}
  config: {{hidden: 64}}
training: {{mode: async, epochs: 20, batch_size: 32, learning_rate: 0.003}}
# 1 worker + 1 parameter server + the chief = 3 of the tenant's 4 slots.
gang: {{workers: 1, parameter_servers: 1}}
# A model below this is not exported.
gate: {{metric: accuracy, minimum: 0.85}}
export: {{model: {pipeline}}}
schedule: null
""",
    "config/clusters/embedded.yaml": """\
description: A platform on one machine, as `trainyard up` starts it
kubeconfig: null # TRAINYARD_KUBECONFIG names it
addressing: host
ports: {{first: 20000, last: 24999, block: 64}}
images: {{trainer: "localhost/trainyard/trainer:dev", airflow: "localhost/trainyard/airflow:dev"}}
image_pull_policy: IfNotPresent
s3:
  mode: managed
  endpoint: null # TRAINYARD_S3_ENDPOINT names it
  region: us-east-1
  bucket_prefix: trainyard
""",
    "{package}/__init__.py": '"""Our model of handwritten digits."""\n',
    "{package}/model.py": '''\
"""The network. `build` is all that the platform asks for: it knows nothing of workers, parameter servers or clusters."""

from __future__ import annotations

from typing import Any

import keras


def build(config: dict[str, Any]) -> keras.Model:
    """The model of one configuration: `hidden` is the width of its hidden layer."""
    return keras.Sequential(
        [
            keras.Input(shape=(8, 8, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(int(config.get("hidden", 64)), activation="relu", kernel_initializer="he_normal"),
            keras.layers.Dense(10),  # logits
        ]
    )
''',
    ".gitignore": "__pycache__/\n*.pyc\nvar/\n",
}


def create(folder: Path, tenant: str) -> list[str]:
    """Writes the repository into ``folder`` and says which files it made, relative to it.

    Raises:
        ConfigError: the folder holds something already, or the tenant's name cannot be one.
    """
    _check_tenant(tenant)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} holds something already: name a new folder")
    values = {"tenant": tenant, "pipeline": PIPELINE, "package": PACKAGE}
    made = []
    for name, text in _FILES.items():
        path = folder / name.format(**values)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if name.endswith("model.py") else text.format(**values), encoding="utf-8")
        made.append(path.relative_to(folder).as_posix())
    return made


def _check_tenant(name: str) -> None:
    """By the settings' own rule: what is made here passes ``validate``."""
    from pydantic import ValidationError

    from trainyard.settings.tenants import Tenant

    try:
        Tenant.model_validate(
            {"name": name, "owner": "x", "contact": "x", "slots": 1, "slot": {"cpu": "1", "memory": "1Gi", "scratch": "1Gi"}}
        )
    except ValidationError as e:
        raise ConfigError(
            f"--tenant {name}: use 3–30 lower-case letters, digits and dashes, starting with a letter, ending neither with a dash nor in "
            f"`-models`, and not `{PLATFORM_TEAM}`"
        ) from e
