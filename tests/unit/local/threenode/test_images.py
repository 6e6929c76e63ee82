"""An image of one program, as an engine's archive has it."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

from local.threenode import images


def read(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        found = {}
        for entry in tar:
            file = tar.extractfile(entry)
            assert file is not None
            found[entry.name] = file.read()
        return found


def test_the_archive_holds_what_its_manifest_and_digests_say(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(b"\x7fELF and so on")
    images.write(tmp_path / "pause.tar", images.PAUSE, program)
    entries = read(tmp_path / "pause.tar")
    (manifest,) = json.loads(entries["manifest.json"])
    assert manifest["RepoTags"] == [images.PAUSE]
    config = entries[manifest["Config"]]
    assert manifest["Config"] == f"{hashlib.sha256(config).hexdigest()}.json"
    (layer,) = manifest["Layers"]
    assert json.loads(config)["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(entries[layer]).hexdigest()}"]
    with tarfile.open(fileobj=io.BytesIO(entries[layer])) as inner:
        (entry,) = inner.getmembers()
        assert (entry.name, entry.mode) == ("pause", 0o755)
        file = inner.extractfile(entry)
        assert file is not None
        assert file.read() == program.read_bytes()
    assert json.loads(config)["config"]["Entrypoint"] == ["/pause"]


def test_the_same_program_makes_the_same_image(tmp_path: Path) -> None:
    program = tmp_path / "coredns"
    program.write_bytes(b"one")
    for name in ("a.tar", "b.tar"):
        images.write(tmp_path / name, images.COREDNS, program)
        program.touch()
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    program.write_bytes(b"two")
    images.write(tmp_path / "b.tar", images.COREDNS, program)
    assert (tmp_path / "a.tar").read_bytes() != (tmp_path / "b.tar").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar", "b.tar", "coredns"]
