"""A pod's volumes as folders of this machine: emptyDir, secret, configMap, downwardAPI, projected (with service-account tokens).

Contents are written when the pod starts. Later changes of a secret or config map are not copied in; tokens are renewed at 80 % of their
life, as a kubelet does. Kinds not handled here are refused before (unsupported.py).
"""

import os
import time
from pathlib import Path

from local.kubelet import downward
from local.kubelet.api import Json
from local.kubelet.node import Capacity
from local.kubelet.sources import SourceError, Sources, Values, required

KINDS = ("emptyDir", "secret", "configMap", "downwardAPI", "projected")
PROJECTED = ("secret", "configMap", "downwardAPI", "serviceAccountToken")
SERVICE_ACCOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
RENEW_AT = 0.8
"""Share of a token's life after which it is renewed."""


class Volumes:
    """The volumes of one pod, below its folder."""

    def __init__(self, pod: Json, folder: Path, sources: Sources, capacity: Capacity) -> None:
        self._pod = pod
        self._folder = folder
        self._sources = sources
        self._capacity = capacity
        self._renewals: dict[Path, tuple[float, Json]] = {}
        """Token files: when each is due (monotonic seconds), and its projection."""

    def path(self, name: str) -> Path:
        """Where a volume is."""
        return self._folder / name

    def make(self) -> None:
        """Write all volumes; may be called again after a failure. Raises SourceError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for volume in self._pod["spec"].get("volumes") or []:
            folder = self.path(volume["name"])
            folder.mkdir(exist_ok=True)
            try:
                self._fill(folder, volume)
            except (SourceError, downward.FieldError) as problem:
                raise SourceError(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {problem}') from problem

    def _fill(self, folder: Path, volume: Json) -> None:
        if "emptyDir" in volume:
            folder.chmod(0o777)
        elif "projected" in volume:
            mode = volume["projected"].get("defaultMode", 0o644)
            for source in volume["projected"].get("sources") or []:
                self._project(folder, source, mode)
        elif "secret" in volume:
            self._project(
                folder, {"secret": {**volume["secret"], "name": volume["secret"]["secretName"]}}, volume["secret"].get("defaultMode", 0o644)
            )
        else:
            kind = "configMap" if "configMap" in volume else "downwardAPI"
            self._project(folder, {kind: volume[kind]}, volume[kind].get("defaultMode", 0o644))

    def _project(self, folder: Path, source: Json, mode: int) -> None:
        if token := source.get("serviceAccountToken"):
            self._write_token(folder / token["path"], token)
        elif items := source.get("downwardAPI"):
            for item in items.get("items") or []:
                if "fieldRef" in item:
                    text = downward.field(self._pod, item["fieldRef"]["fieldPath"])
                else:
                    text = downward.resource(self._pod, "", item["resourceFieldRef"], self._capacity)
                write(folder / item["path"], text.encode(), item.get("mode", mode))
        else:
            kind, read = ("secret", self._sources.secret) if "secret" in source else ("configMap", self._sources.config_map)
            reference = source[kind]
            optional = bool(reference.get("optional"))
            values = required(read(reference["name"]), kind.lower(), reference["name"], optional)
            for path, value, item_mode in _items(kind, reference, values, optional):
                write(folder / path, value, item_mode or mode)

    def _write_token(self, file: Path, projection: Json) -> None:
        token = self._sources.token(projection.get("audience"), int(projection.get("expirationSeconds", 3600)))
        write(file, token.value.encode(), 0o600)
        self._renewals[file] = (time.monotonic() + token.lifetime_s * RENEW_AT, projection)

    def renew_tokens(self, now: float) -> None:
        """Renew the tokens that are due at `now` (monotonic seconds). Raises SourceError; the old ones are valid for a while then."""
        for file, (due, projection) in list(self._renewals.items()):
            if now >= due:
                self._write_token(file, projection)

    def next_renewal(self) -> float | None:
        """When a token is due next, in monotonic seconds."""
        return min((due for due, _ in self._renewals.values()), default=None)

    def over_limit(self) -> tuple[str, str] | None:
        """The first emptyDir that holds more than its sizeLimit: its name and limit."""
        for volume in self._pod["spec"].get("volumes") or []:
            limit = (volume.get("emptyDir") or {}).get("sizeLimit")
            if limit and used_bytes(self.path(volume["name"])) > downward.quantity(str(limit)) > 0:
                return volume["name"], str(limit)
        return None

    def limited(self) -> bool:
        """Whether any volume has a size limit."""
        return any((volume.get("emptyDir") or {}).get("sizeLimit") for volume in self._pod["spec"].get("volumes") or [])


def _items(kind: str, reference: Json, values: Values, optional: bool) -> list[tuple[str, bytes, int | None]]:
    """The files of a secret or config map: all keys, or those listed."""
    if not reference.get("items"):
        return [(key, value, None) for key, value in sorted(values.items())]
    chosen = []
    for item in reference["items"]:
        if item["key"] in values:
            chosen.append((item["path"], values[item["key"]], item.get("mode")))
        elif not optional:
            raise SourceError(f"{kind.lower()} references non-existent {kind.lower()} key: {item['key']}")
    return chosen


def write(file: Path, data: bytes, mode: int) -> None:
    """Write a file so that a reader sees the old or the new one, never half."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f"..{file.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(data)
    temporary.chmod(mode)
    temporary.rename(file)


def used_bytes(folder: Path) -> int:
    """Disk space of all files below a folder; what vanishes meanwhile does not count."""
    total = 0
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            continue
    return total
