"""Brings files here by presigned links: each checked by size and SHA-256, all of them or none."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from trainyard.cli.exits import RunFailedError
from trainyard.errors import ConfigError, UnavailableError

if TYPE_CHECKING:
    import httpx

TRIES = 3
_LOOPBACK = ("http://127.0.0.1", "http://localhost", "http://[::1]")


class DamagedError(RunFailedError):
    """Raised when bytes do not match their marker after several tries."""


def fetch(
    files: Sequence[Mapping[str, Any]],
    folder: Path,
    *,
    marker: Mapping[str, Any] | None = None,
    transport: httpx.BaseTransport | None = None,
) -> None:
    """Makes ``folder`` of ``files`` (each ``path``, ``url``, ``size``, ``sha256``); it appears when everything in it is checked.

    Raises:
        ConfigError: the folder exists or cannot be made, or a path would leave it.
        DamagedError: bytes that are not what the marker says.
        UnavailableError: S3 does not answer.
    """
    if folder.exists():
        raise ConfigError(f"{folder} exists already: name another folder with `-o`, or remove it first")
    for file in files:
        path = PurePosixPath(file["path"])
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise ConfigError(f"the server names a file `{file['path']}`, which would lie outside the folder: nothing was downloaded")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    except OSError as e:
        raise ConfigError(f"{folder} cannot be made ({e.strerror}): name another folder with `-o`") from e
    try:
        with _http(files, transport) as http:
            for file in files:
                _fetch_one(http, file, work / file["path"])
        if marker is not None:
            (work / "marker.json").write_text(json.dumps(marker, indent=1, sort_keys=True))
        work.chmod(0o755)
        try:
            os.rename(work, folder)
        except OSError as e:
            raise ConfigError(f"{folder} appeared meanwhile: name another folder with `-o`") from e
    finally:
        shutil.rmtree(work, ignore_errors=True)


def fetch_cached(files: Sequence[Mapping[str, Any]], folder: Path) -> list[Path]:
    """The same into a folder that is kept: a file that is there and right is not fetched again."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with _http(files, None) as http:
        for file in files:
            path = folder / PurePosixPath(file["path"]).name
            if not (path.is_file() and path.stat().st_size == file["size"] and _sha256(path) == file["sha256"]):
                handle, part = tempfile.mkstemp(dir=folder, prefix=f".{path.name}-")
                os.close(handle)
                try:
                    _fetch_one(http, file, Path(part))
                    os.replace(part, path)
                finally:
                    Path(part).unlink(missing_ok=True)
            paths.append(path)
    return paths


def _http(files: Sequence[Mapping[str, Any]], transport: httpx.BaseTransport | None) -> httpx.Client:
    import httpx

    here = all(file["url"].startswith(_LOOPBACK) for file in files)
    return httpx.Client(timeout=httpx.Timeout(60.0, connect=5.0), transport=transport, trust_env=not here)


def _fetch_one(http: httpx.Client, file: Mapping[str, Any], path: Path) -> None:
    import httpx

    path.parent.mkdir(parents=True, exist_ok=True)
    problem = ""
    for _ in range(TRIES):
        digest, count = hashlib.sha256(), 0
        try:
            with http.stream("GET", file["url"]) as answer, path.open("wb") as out:
                if answer.status_code == 403:
                    raise UnavailableError(f"the link to {file['path']} is no longer good: run the command again")
                answer.raise_for_status()
                for piece in answer.iter_bytes():
                    digest.update(piece)
                    count += len(piece)
                    out.write(piece)
        except httpx.HTTPError as e:
            problem = ""
            failure = e
            continue
        if count == file["size"] and digest.hexdigest() == file["sha256"]:
            return
        problem = f"{count} bytes with SHA-256 {digest.hexdigest()[:12]}… instead of {file['size']} bytes with {file['sha256'][:12]}…"
    if problem:
        raise DamagedError(f"{file['path']} is not what its marker says: {problem}")
    host = httpx.URL(file["url"]).host
    raise UnavailableError(f"cannot download {file['path']} from {host} ({failure}): can this machine reach the S3 server?") from failure


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
