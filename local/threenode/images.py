"""Images of a single program, written without an engine: the pod's pause program and CoreDNS. Everything else is pulled from a registry."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import tarfile
from pathlib import Path

PAUSE, COREDNS = "docker.io/trainyard/pause:1", "docker.io/trainyard/coredns:1"
"""Nobody pulls these: they are put on every node."""


def write(archive: Path, reference: str, program: Path) -> None:
    """One layer with one program, which is what a container runs, in the format of `docker save`; replaced in one step."""
    name = program.name
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.addfile(_entry(name, program.stat().st_size, 0o755), io.BytesIO(program.read_bytes()))
    blob = layer.getvalue()
    digest = hashlib.sha256(blob).hexdigest()
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    config = {
        "architecture": machine,
        "os": "linux",
        "config": {"Entrypoint": [f"/{name}"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    text = json.dumps(config).encode()
    config_name = f"{hashlib.sha256(text).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [reference], "Layers": [f"{digest}/layer.tar"]}]
    making = archive.with_name(f".{archive.name}.{os.getpid()}")
    try:
        with tarfile.open(making, "w") as tar:
            for entry, data in ((config_name, text), (f"{digest}/layer.tar", blob), ("manifest.json", json.dumps(manifest).encode())):
                tar.addfile(_entry(entry, len(data), 0o644), io.BytesIO(data))
        making.replace(archive)
    finally:
        making.unlink(missing_ok=True)


def _entry(name: str, size: int, mode: int) -> tarfile.TarInfo:
    """Without a date or an owner: the same program makes the same image."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, mode
    return entry
