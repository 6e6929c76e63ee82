"""A pipeline's exported models: versions, the champion, and presigned links to the files of one."""

from __future__ import annotations

from typing import Any

from trainyard.api.deployment import Target
from trainyard.contract import keys
from trainyard.errors import ConfigError, NotFoundError

CHAMPION = "champion"
LINK_SECONDS = 15 * 60
"""Life of a link to a model's file: long enough to begin each download, too short to be passed around."""


def overview(target: Target) -> dict[str, Any]:
    """All whole versions of a pipeline's model, the newest first. A version without a marker is not there (yet)."""
    model = target.pipeline.export.model
    store = target.models
    champion = store.get_json(keys.champion(model))
    versions = []
    for name in store.list_folders(f"{model}/"):
        if name.isdecimal() and (marker := store.get_json(keys.model_marker(model, int(name)))):
            versions.append(_version(model, int(name), marker, champion))
    return {
        "dag_id": target.dag_id,
        "tenant": target.tenant,
        "pipeline": target.pipeline.name,
        "model": model,
        "champion": champion,
        "versions": sorted(versions, key=lambda item: -item["version"]),
    }


def files(target: Target, version: str) -> dict[str, Any]:
    """One version's marker, and for each of its files a path in the model's folder, size, SHA-256 and a link.

    Raises:
        NotFoundError: no champion yet, or no such version.
        ConfigError: ``version`` is neither a number nor ``champion``.
    """
    model = target.pipeline.export.model
    store = target.models
    champion = store.get_json(keys.champion(model))
    if version == CHAMPION:
        if not champion:
            raise NotFoundError(f"model `{model}` has no champion yet: no run of `{target.pipeline.name}` has passed its gate")
        number = int(champion["version"])
    elif version.isdecimal() and len(version) < 10:
        number = int(version)
    else:
        raise ConfigError(f"model version `{version}`: it is a number, or `{CHAMPION}`")
    marker = store.get_json(keys.model_marker(model, number))
    if not marker:
        raise NotFoundError(f"model `{model}` has no version {number}")
    folder = keys.model_version(model, number)
    listed = []
    for item in marker["files"]:
        path = item["key"].removeprefix(folder)
        key = f"{folder}{path}"  # whatever a marker says, a link never leaves the version's folder
        listed.append({"path": path, "size": item["size"], "sha256": item["sha256"], "url": store.presign(key, seconds=LINK_SECONDS)})
    return _version(model, number, marker, champion) | {"dag_id": target.dag_id, "files": listed, "marker": marker}


def _version(model: str, number: int, marker: dict[str, Any], champion: dict[str, Any] | None) -> dict[str, Any]:
    is_champion = bool(champion) and champion is not None and champion["version"] == number
    values = marker.get("values", {})
    return {
        "model": model,
        "version": number,
        "champion": is_champion,
        "run": values.get("run") or (champion["run"] if is_champion and champion else None),
        "dataset_version": values.get("dataset_version") or (champion["dataset_version"] if is_champion and champion else None),
        "metrics": values.get("metrics") or (champion["metrics"] if is_champion and champion else {}),
        "exported": marker.get("ended"),
        "bytes": sum(item["size"] for item in marker["files"]),
    }
