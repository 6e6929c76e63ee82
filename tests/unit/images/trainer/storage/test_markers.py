from __future__ import annotations

import pytest

from trainer.errors import DataError
from trainer.storage import markers
from trainer.storage.objects import Bucket, File


def _whole(bucket: Bucket, inputs: str = "i") -> markers.Marker:
    bucket.put("file", b"12345")
    return markers.write(bucket, "marker.json", "step", inputs, files=[File.of("file", b"12345")], values={"n": 1})


def test_a_marker_has_the_contracts_shape(bucket: Bucket) -> None:
    _whole(bucket)
    document = bucket.get_json("marker.json")
    assert document is not None
    assert document.pop("ended").endswith("Z")
    assert document == {
        "version": 1,
        "step": "step",
        "inputs": "i",
        "files": [{"key": "file", "size": 5, "sha256": "5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5"}],
        "values": {"n": 1},
    }


def test_done_means_whole_and_of_the_same_inputs(bucket: Bucket) -> None:
    assert markers.done(bucket, "marker.json", "i") is None
    marker = _whole(bucket)
    assert markers.done(bucket, "marker.json", "i") == marker
    assert markers.done(bucket, "marker.json", "other") is None


def test_a_file_that_is_gone_or_shorter_makes_a_marker_worthless(bucket: Bucket) -> None:
    _whole(bucket)
    bucket.put("file", b"123")
    assert markers.done(bucket, "marker.json", "i") is None
    with pytest.raises(DataError, match=r"is not whole: .*file has 3 bytes, recorded were 5; clear prepare"):
        markers.need(bucket, "marker.json", "prepare")
    bucket.delete("file")
    with pytest.raises(DataError, match="file is not there"):
        markers.need(bucket, "marker.json", "prepare")


def test_a_step_that_has_not_ended_is_named(bucket: Bucket) -> None:
    with pytest.raises(DataError, match=r"marker\.json is not there: prepare has not ended well"):
        markers.need(bucket, "marker.json", "prepare")


@pytest.mark.parametrize("document", [{}, [], {"version": 2}, {"version": 1, "step": "s"}, {"version": 1, "files": [{}]}])
def test_what_is_no_marker_is_said(bucket: Bucket, document: object) -> None:
    bucket.put_json("marker.json", document)
    with pytest.raises(DataError, match="marker"):
        markers.read(bucket, "marker.json")


def test_a_markers_digest_is_of_what_and_not_of_when(bucket: Bucket) -> None:
    first, second = _whole(bucket), _whole(bucket)
    assert first.digest == second.digest
    assert _whole(bucket, "other").digest != first.digest


def test_digests_tell_values_apart() -> None:
    assert markers.digest({"a": 1, "b": 2}) == markers.digest({"b": 2, "a": 1})
    assert len({markers.digest(*parts) for parts in ((1,), ("1",), (1, 1), ([1, 1],), (None,), ({},))}) == 6
