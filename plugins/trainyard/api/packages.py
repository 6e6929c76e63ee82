"""Published packages: a wheel by its digest, then the pointer to the newest by compare-and-swap."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from trainyard.api.deployment import Target
from trainyard.api.wheels import inspect
from trainyard.contract import keys
from trainyard.errors import ConfigError, ConflictError, UnavailableError

POINTER_TRIES = 5


def publish(target: Target, data: bytes, sha256: str, by: str) -> dict[str, Any]:
    """Stores the wheel and makes it the package's newest; doing it twice changes nothing.

    Raises:
        ConfigError: the pipeline names no package, or the wheel is refused.
        UnavailableError: S3 does not answer, or others publish the same package all the time.
    """
    package = target.pipeline.model.package
    if package is None:
        raise ConfigError(f"pipeline `{target.pipeline.name}` names no package: it trains `{target.pipeline.model.build}`")
    inspect(data, package, sha256)
    store = target.data
    key = keys.code_wheel(package, sha256)
    if not store.exists(key):
        store.put(key, data)  # the key names the bytes: two writers write the same
    newest = {"sha256": sha256, "key": key, "size": len(data), "by": by, "published": datetime.now(UTC).isoformat(timespec="seconds")}
    for _ in range(POINTER_TRIES):
        present = store.get_json_with_etag(keys.code_newest(package))
        if present and present[0]["sha256"] == sha256:
            return {"package": package, "changed": False, **present[0]}
        try:
            store.put_json(keys.code_newest(package), newest, if_match=present[1] if present else None, if_none_match=present is None)
        except ConflictError:
            continue  # someone published meanwhile: ours is later, as it is being asked for now
        return {"package": package, "changed": True, **newest}
    raise UnavailableError(f"package `{package}` is being published by others at this moment: try again")
