"""Checkpoints in a real S3: visible only when whole, two kept, written only by the generation that holds the run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.run_spec import run_spec_document
from tests.fixtures.s3 import S3Server
from trainer import spec as specs
from trainer.engine.checkpoints import Checkpoints, inputs
from trainer.engine.generation import Generation
from trainer.errors import StorageError, SupersededError
from trainer.storage import keys
from trainer.storage.client import connect
from trainer.storage.objects import Bucket

RUN = run_spec_document()["run"]


class Failing(Bucket):
    """A bucket whose k-th PUT from now fails, as if the process died there."""

    def __init__(self, bucket: Bucket, fail_at: int) -> None:
        super().__init__(bucket.client, bucket.name)
        self._left = fail_at

    def put(self, key: str, data: bytes, **options: Any) -> str:
        if self._left == 0:
            raise StorageError(f"killed before {key}")
        self._left -= 1
        return super().put(key, data, **options)


@pytest.fixture
def bucket(s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    for name, value in s3_server.environ().items():
        monkeypatch.setenv(name, value)
    storage = specs.StorageSpec(s3_server.endpoint, s3_server.region, s3_bucket, s3_bucket)
    found = Bucket(connect(storage), s3_bucket)
    hold(found, 1)
    return found


def hold(bucket: Bucket, generation: int) -> None:
    bucket.put_json(keys.generation(RUN), {"generation": generation, "spec_sha256": ""})


def spec(**changes: Any) -> specs.RunSpec:
    return specs.load(json.dumps(run_spec_document(**changes)))


def checkpoints(bucket: Bucket, folder: Path, said: list[str] | None = None, generation: int = 1, **changes: Any) -> Checkpoints:
    say = (said if said is not None else []).append
    return Checkpoints(bucket, spec(**changes), Generation(bucket, RUN, generation), folder, say)


def writer(text: str) -> Callable[[str], None]:
    """What TensorFlow does: some files under a prefix, and one that names paths of this machine."""

    def write(prefix: str) -> None:
        for name in ("index", "data-00000-of-00002", "data-00001-of-00002"):
            Path(f"{prefix}.{name}").write_text(f"{text} {name}")
        Path(prefix).with_name("checkpoint").write_text(prefix)

    return write


def restored(one: Checkpoints) -> tuple[int | None, str]:
    """The step and the text that ``writer`` was given."""
    texts: list[str] = []

    def read(prefix: str) -> int:
        texts.append(Path(f"{prefix}.index").read_text().partition(" ")[0])
        assert Path(f"{prefix}.data-00001-of-00002").exists()
        return 0

    marker = one.restore(read)
    return (int(marker.values["step"]), texts[-1]) if marker else (None, "")


def test_what_was_saved_is_restored_and_nothing_stays_on_this_machine(bucket: Bucket, tmp_path: Path) -> None:
    one = checkpoints(bucket, tmp_path / "work")
    assert restored(one) == (None, "")
    marker = one.save(50, writer("fifty"), {"loss": 0.5})
    assert [file.name for file in marker.files] == ["weights.data-00000-of-00002", "weights.data-00001-of-00002", "weights.index"]
    assert marker.values == {"step": 50, "loss": 0.5}
    assert restored(one) == (50, "fifty")
    assert not any((tmp_path / "work").iterdir())


def test_the_newest_two_are_kept(bucket: Bucket, tmp_path: Path) -> None:
    one = checkpoints(bucket, tmp_path)
    for step in (50, 100, 150, 200):
        one.save(step, writer(str(step)), {})
    folders = {key.split("/")[-2] for key, _, _ in bucket.list(keys.checkpoints(RUN))}
    assert folders == {"0000000150", "0000000200"}


@pytest.mark.parametrize("k", range(4))
def test_killed_at_any_put_the_last_whole_one_is_restored_and_the_next_save_cleans_up(bucket: Bucket, tmp_path: Path, k: int) -> None:
    checkpoints(bucket, tmp_path).save(50, writer("fifty"), {})
    with pytest.raises(StorageError, match="killed before"):
        checkpoints(Failing(bucket, k), tmp_path).save(100, writer("hundred"), {})  # type: ignore[arg-type]
    one = checkpoints(bucket, tmp_path)
    assert restored(one) == (50, "fifty")
    one.save(150, writer("later"), {})
    folders = {key.split("/")[-2] for key, _, _ in bucket.list(keys.checkpoints(RUN))}
    assert folders == {"0000000050", "0000000150"}, "the half one is gone, and did not count as one of the two"


def test_a_fifth_put_would_not_be_made(bucket: Bucket, tmp_path: Path) -> None:
    """So the test above covers every PUT."""
    checkpoints(Failing(bucket, 4), tmp_path).save(100, writer("hundred"), {})


def test_damaged_bytes_are_said_and_the_older_one_is_taken(bucket: Bucket, tmp_path: Path) -> None:
    said: list[str] = []
    one = checkpoints(bucket, tmp_path, said)
    one.save(50, writer("fifty"), {})
    one.save(100, writer("hundred"), {})
    key = keys.checkpoint(RUN, 100) + "weights.index"
    bucket.put(key, b"x" * len(bucket.get(key) or b""))  # as long as before: only its SHA-256 tells
    assert restored(one) == (50, "fifty")
    assert len(said) == 1
    assert "checkpoint 100 is passed over" in said[0]
    assert "SHA-256" in said[0]


def test_a_checkpoint_of_other_inputs_is_no_checkpoint_of_this_run(bucket: Bucket, tmp_path: Path) -> None:
    checkpoints(bucket, tmp_path).save(50, writer("fifty"), {})
    assert restored(checkpoints(bucket, tmp_path, training__learning_rate=0.5)) == (None, "")


def test_the_gangs_shape_is_no_part_of_the_inputs() -> None:
    assert inputs(spec()) == inputs(spec(gang__workers=4, gang__parameter_servers=3, slot__cpu="2"))


@pytest.mark.parametrize("moment", ["before", "between"])
def test_a_superseded_generation_leaves_no_marker(bucket: Bucket, tmp_path: Path, moment: str) -> None:
    one = checkpoints(bucket, tmp_path)
    one.save(50, writer("fifty"), {})

    class Moving(Bucket):
        """The operator moves on while files are being uploaded."""

        def upload(self, *args: Any, **options: Any) -> Any:
            hold(bucket, 2)
            return super().upload(*args, **options)

    if moment == "before":
        hold(bucket, 2)
    old = checkpoints(Moving(bucket.client, bucket.name), tmp_path)
    with pytest.raises(SupersededError, match="generation 2 holds the run, this is generation 1"):
        old.save(100, writer("old"), {})
    assert restored(checkpoints(bucket, tmp_path, generation=2)) == (50, "fifty")


def test_without_a_generation_nothing_is_written(bucket: Bucket, tmp_path: Path) -> None:
    bucket.delete(keys.generation(RUN))
    with pytest.raises(SupersededError, match="nothing says that generation 1 holds the run"):
        checkpoints(bucket, tmp_path).save(50, writer("x"), {})
    assert list(bucket.list(keys.checkpoints(RUN))) == []
