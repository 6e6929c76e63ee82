from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.fixtures.cable import cable
from tests.fixtures.s3 import S3Server
from trainer.errors import ConflictError, DataError, StorageError
from trainer.spec import StorageSpec
from trainer.storage import objects
from trainer.storage.client import connect
from trainer.storage.objects import Bucket, File


def _file(tmp_path: Path, data: bytes, name: str = "file") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


def test_what_is_not_there_is_none(bucket: Bucket) -> None:
    assert bucket.get("nothing") is None
    assert bucket.get_json("nothing") is None
    assert bucket.head("nothing") is None
    assert list(bucket.list("nothing/")) == []
    bucket.delete("nothing")


def test_documents_come_back(bucket: Bucket) -> None:
    bucket.put_json("a/document.json", {"ä": [1, None, 2.5]})
    assert bucket.get_json("a/document.json") == {"ä": [1, None, 2.5]}


def test_what_is_no_json_is_a_data_error_that_names_it(bucket: Bucket) -> None:
    bucket.put("broken.json", b"{")
    with pytest.raises(DataError, match=r"s3://.*/broken\.json is not JSON"):
        bucket.get_json("broken.json")


def test_a_conditional_write_happens_once(bucket: Bucket) -> None:
    etag = bucket.put_json("pointer", 1, if_absent=True)
    with pytest.raises(ConflictError):
        bucket.put_json("pointer", 2, if_absent=True)
    newer = bucket.put_json("pointer", 3, if_match=etag)
    with pytest.raises(ConflictError):
        bucket.put_json("pointer", 4, if_match=etag)
    assert bucket.get_json_with_etag("pointer") == (3, newer)


def test_an_upload_records_what_it_was(bucket: Bucket, tmp_path: Path) -> None:
    data = b"x" * 1000
    file = bucket.upload(_file(tmp_path, data), "files/x", examples=7)
    assert file == File("files/x", 1000, hashlib.sha256(data).hexdigest(), 7)
    head = bucket.head("files/x")
    assert head is not None
    assert (head.size, head.sha256) == (1000, file.sha256)
    assert File.from_json(file.to_json()) == file


def test_a_file_that_is_there_is_not_uploaded_again(bucket: Bucket, tmp_path: Path) -> None:
    path = _file(tmp_path, b"same")
    bucket.upload(path, "x")
    (before,) = bucket.list("x")
    puts = []
    bucket.client.meta.events.register("before-call.s3.PutObject", lambda **_: puts.append(1))
    bucket.upload(path, "x")
    assert puts == []
    bucket.upload(_file(tmp_path, b"diff", "other"), "x")
    assert puts == [1]
    assert bucket.get("x") == b"diff"
    assert before[1] == 4


def test_large_files_go_in_parts(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "PART_BYTES", 5 * 1024 * 1024)
    data = bytes(range(256)) * (12 * 4096)
    file = bucket.upload(_file(tmp_path, data), "large")
    assert bucket.download(file, tmp_path / "back").read_bytes() == data
    assert bucket.upload(_file(tmp_path, data), "large") == file


def test_parts_of_a_failed_upload_are_taken_back(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "PART_BYTES", 5 * 1024 * 1024)
    sent = []

    def fail(**_: object) -> None:
        sent.append(1)
        if len(sent) == 2:
            raise ConnectionError("the cable")

    bucket.client.meta.events.register("before-call.s3.UploadPart", fail)
    with pytest.raises(ConnectionError):
        bucket.upload(_file(tmp_path, b"0" * (12 * 1024 * 1024)), "large")
    assert bucket.head("large") is None
    assert bucket.client.list_multipart_uploads(Bucket=bucket.name).get("Uploads", []) == []


def test_a_download_is_checked_and_appears_whole(bucket: Bucket, tmp_path: Path) -> None:
    file = bucket.upload(_file(tmp_path, b"content"), "x")
    path = tmp_path / "deep" / "down" / "x"
    assert bucket.download(file, path).read_bytes() == b"content"
    assert [p.name for p in path.parent.iterdir()] == ["x"]


def test_bytes_that_changed_are_refused(bucket: Bucket, tmp_path: Path) -> None:
    file = bucket.upload(_file(tmp_path, b"content"), "x")
    bucket.put("x", b"CONTENT")
    with pytest.raises(DataError, match="is not what was recorded: expected 7 bytes"):
        bucket.download(file, tmp_path / "y", attempts=2)
    assert not (tmp_path / "y").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_recorded_file_that_is_gone_is_a_data_error(bucket: Bucket, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not there, though it was recorded"):
        bucket.download(File("gone", 3, "0" * 64), tmp_path / "y")


def test_a_local_file_is_trusted_only_when_it_is_the_right_one(bucket: Bucket, tmp_path: Path) -> None:
    file = bucket.upload(_file(tmp_path, b"content"), "x")
    path = _file(tmp_path, b"CONTENT", "y")
    assert bucket.download(file, path).read_bytes() == b"content"
    bucket.delete("x")
    assert bucket.download(file, path).read_bytes() == b"content"


def test_listing_goes_over_pages(bucket: Bucket) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: bucket.put(f"many/{i:04d}", b""), range(1100)))
    assert [key for key, _, _ in bucket.list("many/")] == [f"many/{i:04d}" for i in range(1100)]


def test_delete_prefix_takes_nothing_else(bucket: Bucket) -> None:
    for key in ("a/1", "a/2", "ab/1"):
        bucket.put(key, b"")
    assert bucket.delete_prefix("a/") == 2
    assert [key for key, _, _ in bucket.list("")] == ["ab/1"]


def test_a_missing_bucket_is_no_missing_object(s3_server: S3Server) -> None:
    nowhere = Bucket(s3_server.client(), "no-such-bucket")
    with pytest.raises(StorageError, match="NoSuchBucket"):
        nowhere.get("x")


def test_wrong_credentials_name_endpoint_and_key(s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    storage = StorageSpec(endpoint=s3_server.endpoint, region="us-east-1", bucket=s3_bucket, models_bucket="")
    with pytest.raises(StorageError) as caught:
        Bucket(connect(storage), s3_bucket).get("x")
    assert all(part in str(caught.value) for part in (s3_server.endpoint, f"s3://{s3_bucket}/x", "InvalidAccessKeyId"))


def test_a_server_that_is_away_is_a_storage_error(s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_server.environ().items():
        monkeypatch.setenv(name, value)
    with cable(s3_server.endpoint) as line:
        storage = StorageSpec(endpoint=line.endpoint, region="us-east-1", bucket=s3_bucket, models_bucket="")
        bucket = Bucket(connect(storage, attempts=2), s3_bucket)
        bucket.put("x", b"1")
        line.cut()
        with pytest.raises(StorageError, match="does not answer"):
            bucket.get("x")
        line.mend()
        assert bucket.get("x") == b"1"
