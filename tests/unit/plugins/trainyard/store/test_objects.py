"""One bucket of a real S3 server: what is read, written, compared, listed and linked."""

from __future__ import annotations

import concurrent.futures
import datetime
import json
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.fixtures.s3 import S3Server, free_ports
from trainyard.errors import ConflictError, NotFoundError, RefusedError, UnavailableError
from trainyard.store import Store


@pytest.fixture
def store(s3_server: S3Server, s3_bucket: str) -> Store:
    return Store(s3_bucket, s3_server.endpoint, s3_server.region, s3_server.access_key, s3_server.secret_key)


def test_a_document_comes_back_and_absence_is_none(store: Store) -> None:
    assert store.get_json("runs/a/spec.json") is None
    assert store.get_json_with_etag("runs/a/spec.json") is None
    assert store.head("runs/a/spec.json") is None
    assert not store.exists("runs/a/spec.json")
    etag = store.put_json("runs/a/spec.json", {"b": 1, "a": "ü"})
    assert store.get_json_with_etag("runs/a/spec.json") == ({"b": 1, "a": "ü"}, etag)
    assert store.get("runs/a/spec.json") == '{"a": "ü", "b": 1}'.encode()
    head = store.head("runs/a/spec.json")
    assert head is not None
    assert (head.size, head.etag) == (19, etag)


def test_no_document_holds_what_is_not_json(store: Store) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        store.put_json("a.json", {"loss": float("nan")})
    store.put("a.json", b"{half")
    with pytest.raises(UnavailableError, match=r"s3://.*/a\.json: is not JSON"):
        store.get_json("a.json")


def test_create_only_if_absent(store: Store) -> None:
    store.put_json("claim.json", {"run": "one"}, if_none_match=True)
    with pytest.raises(ConflictError, match=r"claim\.json: another writer was first"):
        store.put_json("claim.json", {"run": "two"}, if_none_match=True)
    assert store.get_json("claim.json") == {"run": "one"}


def test_replace_only_what_was_read(store: Store) -> None:
    first = store.put_json("champion.json", {"version": 1})
    second = store.put_json("champion.json", {"version": 2}, if_match=first)
    with pytest.raises(ConflictError):
        store.put_json("champion.json", {"version": 3}, if_match=first)
    assert store.get_json_with_etag("champion.json") == ({"version": 2}, second)


def test_of_many_writers_exactly_one_wins_each_round(store: Store) -> None:
    writers = 6

    def write(value: list[int], etag: str | None, start: threading.Barrier) -> str | None:
        start.wait()
        try:
            # An ETag is a digest of the bytes: what is written must never have been written before, or it proves nothing.
            return store.put_json("generation.json", {"generation": value}, if_match=etag, if_none_match=etag is None)
        except ConflictError:
            return None

    etag: str | None = None
    with concurrent.futures.ThreadPoolExecutor(writers) as pool:
        for number in range(4):
            start = threading.Barrier(writers)
            results = [f.result() for f in [pool.submit(write, [number, n], etag, start) for n in range(writers)]]
            winners = [result for result in results if result]
            assert len(winners) == 1
            etag = winners[0]


def test_ranges_for_a_log_that_grows(store: Store) -> None:
    store.put("log", b"0123456789")
    assert store.get_range("log", 3, 4) == b"3456"
    assert store.get_range("log", 8, 100) == b"89"
    assert store.get_range("log", 10, 5) == b""
    assert store.get_range("log", 0, 0) == b""
    with pytest.raises(NotFoundError):
        store.get_range("nothing", 0, 5)


def test_listing_in_order_beyond_one_page_and_by_folder(store: Store) -> None:
    names = [f"runs/{run}/logs/{n:04d}.log" for run in ("b", "a") for n in range(3)]
    for name in names:
        store.put(name, b"x")
    assert [info.key for info in store.list("runs/")] == sorted(names)
    assert [info.key for info in store.list("runs/a/", after="runs/a/logs/0001.log")] == ["runs/a/logs/0002.log"]
    assert list(store.list_folders("runs/")) == ["a", "b"]
    assert list(store.list_folders("nothing/")) == []


@pytest.mark.slow
def test_more_objects_than_a_page_holds_are_listed_and_deleted(store: Store) -> None:
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: store.put(f"many/{n:05d}", b""), range(1003)))
    assert sum(1 for _ in store.list("many/")) == 1003
    assert store.delete_prefix("many/") == 1003
    assert list(store.list("many/")) == []


def test_deleting_a_prefix_leaves_its_neighbours(store: Store) -> None:
    for key in ("runs/a/1", "runs/a/2", "runs/ab/1"):
        store.put(key, b"x")
    assert store.delete_prefix("runs/a/") == 2
    assert [info.key for info in store.list("")] == ["runs/ab/1"]
    assert store.delete_prefix("runs/a/") == 0
    store.delete("runs/a/1")
    for whole in ("", "/"):
        with pytest.raises(ValueError, match="whole bucket"):
            store.delete_prefix(whole)


def test_files_up_and_down(store: Store, tmp_path: Path) -> None:
    source = tmp_path / "model.bin"
    source.write_bytes(bytes(range(256)) * 40_000)  # 10 MB: more than one part
    store.upload_file(source, "m/model.bin")
    target = tmp_path / "new" / "model.bin"
    store.download_file("m/model.bin", target)
    assert target.read_bytes() == source.read_bytes()
    with pytest.raises(NotFoundError):
        store.download_file("m/none.bin", tmp_path / "none.bin")
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["model.bin", "model.bin"]


def test_uploads_that_nobody_completes_are_ended(store: Store, s3_server: S3Server) -> None:
    client = s3_server.client()
    for key in ("runs/a/saved_model/x", "runs/a/saved_model/y", "runs/b/z"):
        client.create_multipart_upload(Bucket=store.bucket, Key=key)
    assert store.abort_uploads("runs/a/") == 2
    assert store.abort_uploads("runs/a/") == 0
    assert store.abort_uploads("runs/b/") == 1


def test_uploads_are_ended_by_their_age_and_a_dry_run_only_counts(store: Store, s3_server: S3Server) -> None:
    client = s3_server.client()
    client.create_multipart_upload(Bucket=store.bucket, Key="runs/a/saved_model/x")
    assert store.abort_uploads("runs/", older_than=datetime.timedelta(hours=1)) == 0
    just_now = datetime.timedelta(seconds=-60)  # whatever began before a minute from now
    assert store.abort_uploads("runs/", older_than=just_now, dry_run=True) == 1
    assert store.abort_uploads("runs/", older_than=just_now) == 1
    assert store.abort_uploads("runs/", older_than=just_now) == 0


def test_a_link_reads_one_object_and_nothing_else(store: Store) -> None:
    store.put("models/1/saved_model.pb", b"graph")
    store.put("models/2/saved_model.pb", b"other")
    link = store.presign("models/1/saved_model.pb", file_name="saved_model.pb")
    with urllib.request.urlopen(link, timeout=10) as answer:
        assert answer.read() == b"graph"
        assert 'filename="saved_model.pb"' in answer.headers["Content-Disposition"]
    for wrong in (link.replace("models/1", "models/2"), link.split("?")[0]):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(wrong, timeout=10)
        assert refused.value.code == 403
        refused.value.close()


def test_a_link_writes_and_is_made_for_the_callers_endpoint(store: Store) -> None:
    link = store.presign("code/p/1.whl", method="PUT")
    request = urllib.request.Request(link, data=b"wheel", method="PUT")
    urllib.request.urlopen(request, timeout=10).close()
    assert store.get("code/p/1.whl") == b"wheel"
    assert store.presign("x", endpoint="https://s3.example.com").startswith("https://s3.example.com/")


def test_errors_name_the_object_and_the_server(store: Store, s3_server: S3Server) -> None:
    with pytest.raises(NotFoundError, match=rf"s3://{store.bucket}/none: there is no such object"):
        store.get("none")
    nowhere = Store("no-such-bucket-here", s3_server.endpoint, s3_server.region, s3_server.access_key, s3_server.secret_key)
    with pytest.raises(NotFoundError, match="trainyard sync"):
        list(nowhere.list(""))
    stranger = Store(store.bucket, s3_server.endpoint, s3_server.region, "nobody", "wrong")
    with pytest.raises(RefusedError, match="refuses these credentials"):
        stranger.get("none")


def test_a_server_that_does_not_answer_is_named(free_tcp: int) -> None:
    away = Store("b", f"http://127.0.0.1:{free_tcp}", "us-east-1", "a", "s")
    with pytest.raises(UnavailableError, match=rf"s3://b/claim: S3 at http://127\.0\.0\.1:{free_tcp} does not answer"):
        away.put("claim", b"", if_none_match=True)


@pytest.fixture
def free_tcp() -> int:
    return free_ports(1)[0]


def test_a_conditional_write_whose_answer_is_lost_is_not_repeated(free_tcp: int) -> None:
    """A server that takes the request and hangs up: a repetition could be told that another writer was first."""
    import socket

    seen: list[bytes] = []
    server = socket.create_server(("127.0.0.1", free_tcp))

    def serve() -> None:
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            with peer:
                seen.append(peer.recv(65536))

    thread = threading.Thread(target=serve)
    thread.start()
    store = Store("b", f"http://127.0.0.1:{free_tcp}", "us-east-1", "a", "s")
    try:
        with pytest.raises(UnavailableError):
            store.put_json("claim.json", {"run": "r"}, if_none_match=True)
        assert len(seen) == 1
        assert b"if-none-match: *" in seen[0].lower()
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(10)


def test_secrets_do_not_show(store: Store) -> None:
    assert store.secret_key is not None
    assert store.secret_key not in repr(store)
    assert json.dumps(store.bucket)[1:-1] in repr(store)
