"""Whether what a person uploads is a pure-Python wheel of the package it claims to be. It is read as a zip file; nothing of it runs."""

from __future__ import annotations

import hashlib
import io
import zipfile
from email.parser import BytesHeaderParser
from pathlib import PurePosixPath

from trainyard.errors import ConfigError

MAX_BYTES = 64 * 2**20
"""Of a wheel. Code is small: what is larger is data, and belongs in a dataset."""
MAX_UNPACKED_BYTES = 256 * 2**20
MAX_FILES = 10_000
_NATIVE = {".so", ".pyd", ".dll", ".dylib", ".pth"}


def inspect(data: bytes, package: str, sha256: str) -> None:
    """Accepts the wheel or says what is wrong with it.

    Raises:
        ConfigError: it is no wheel, not ``package``'s, not pure Python, too large, or not the bytes that ``sha256`` names.
    """
    if len(data) > MAX_BYTES:
        raise ConfigError(f"the wheel has {len(data)} bytes, at most {MAX_BYTES} are taken: keep data out of the package")
    if (digest := hashlib.sha256(data).hexdigest()) != sha256:
        raise ConfigError(f"the wheel's SHA-256 is {digest}, not {sha256}: it was changed on its way, publish again")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            _inspect_archive(archive, package)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, UnicodeDecodeError) as e:
        raise ConfigError(f"this is not a wheel ({e}): make it with `trainyard publish`") from e


def _inspect_archive(archive: zipfile.ZipFile, package: str) -> None:
    entries = archive.infolist()
    if len(entries) > MAX_FILES or sum(entry.file_size for entry in entries) > MAX_UNPACKED_BYTES:
        raise ConfigError(f"the wheel holds more than {MAX_FILES} files or {MAX_UNPACKED_BYTES} bytes: keep data out of the package")
    info: set[str] = set()
    seen: set[str] = set()
    for entry in entries:
        path = PurePosixPath(entry.filename)
        top = path.parts[0] if path.parts else ""
        if path.is_absolute() or ".." in path.parts or "\\" in entry.filename or entry.filename in seen or _is_link(entry):
            raise ConfigError(f"the wheel holds `{entry.filename}`, which no wheel does: make it with `trainyard publish`")
        seen.add(entry.filename)
        if path.suffix in _NATIVE:
            raise ConfigError(f"the wheel holds `{entry.filename}`: a package is pure Python, compiled code belongs in the trainer's image")
        if top.endswith(".dist-info"):
            info.add(top)
        elif top != package:
            raise ConfigError(f"the wheel holds `{entry.filename}`, outside the package `{package}`: it would hide other code")
    if len(info) != 1 or f"{package}/__init__.py" not in seen:
        raise ConfigError(f"this is not a wheel of the package `{package}`: make it with `trainyard publish`")
    metadata = f"{info.pop()}/METADATA"
    if metadata not in seen or (name := BytesHeaderParser().parsebytes(archive.read(metadata)).get("Name")) is None:
        raise ConfigError("the wheel does not say its name: make it with `trainyard publish`")
    if name.replace("-", "_") != package:
        raise ConfigError(f"this is a wheel of `{name}`, not of `{package}`")
    if (damaged := archive.testzip()) is not None:
        raise ConfigError(f"the wheel's `{damaged}` does not match its checksum: publish again")


def _is_link(entry: zipfile.ZipInfo) -> bool:
    return (entry.external_attr >> 16) & 0o170000 == 0o120000
