"""What one process of a person's own needs to train a pipeline on its real shards: the run spec, the manifest, links to the files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

from trainyard.api.deployment import Target
from trainyard.contract import keys
from trainyard.errors import ConfigError, NotFoundError, RefusedError

LINK_SECONDS = 60 * 60
"""Life of a link to a shard: an hour for a laptop's line to fetch them all."""


def describe(target: Target, version: str | None, values: dict[str, Any]) -> dict[str, Any]:
    """The spec as ``check`` would write it (nothing is written here), without a published package: the person has the source.

    Raises:
        ConfigError: a value that the form would refuse.
        NotFoundError: the dataset version's shards are not made yet.
    """
    from trainyard.pipelines.admission import resolve_code
    from trainyard.pipelines.spec import local_run_spec  # with Airflow's parse-time imports: not for processes that only load the app

    now = datetime.now(UTC)
    run_id = f"local__{now:%Y%m%dT%H%M%S}"
    try:
        code = resolve_code(target.data, target.pipeline)
    except NotFoundError:
        code = None  # nothing is published yet, and nothing need be
    try:
        spec = local_run_spec(target.settings, target.pipeline, version=version, values=values, code=code, run_id=run_id, now=now)
    except RefusedError as e:
        raise ConfigError(str(e)) from e  # of the values, not of the person
    document = spec.model_dump(mode="json")
    dataset = document["dataset"]
    root = keys.dataset_root(dataset["name"], dataset["version"], dataset["layout"])
    store = target.data
    manifest = store.get_json(keys.manifest(root))
    if manifest is None:
        raise NotFoundError(
            f"the shards of {dataset['name']} {dataset['version']} are not made yet: the first run on that version makes them "
            f"(`trainyard run {target.pipeline.name} --version {dataset['version']}`)"
        )
    files = [
        {
            "path": PurePosixPath(item["key"]).name,
            "size": item["size"],
            "sha256": item["sha256"],
            "url": store.presign(item["key"], seconds=LINK_SECONDS),
        }
        for item in manifest["files"]
        if item["key"].startswith(root)  # whatever a manifest says, a link never leaves the dataset's folder
    ]
    return {"spec": document, "manifest": manifest, "files": files}
