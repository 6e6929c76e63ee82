"""What each identity may do on a real server, and that keys come and go at once."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixtures.s3 import S3Server
from trainyard.errors import RefusedError
from trainyard.store import Credentials, Store
from trainyard.store.identities import Buckets, IdentityServer, export_policy, run_policy, upkeep_policy


@pytest.fixture
def server(s3_server: S3Server) -> IdentityServer:
    return IdentityServer(Credentials(s3_server.endpoint, s3_server.access_key, s3_server.secret_key), s3_server.region)


@pytest.fixture
def buckets(server: IdentityServer) -> Buckets:
    found = Buckets.of(f"t{secrets.token_hex(3)}", "vision")
    server.make_bucket(found.data)
    server.make_bucket(found.models)
    return found


Opener = Callable[[str, dict[str, object], str], Callable[[str], Store]]


@pytest.fixture
def identity(server: IdentityServer, s3_server: S3Server) -> Opener:
    """Makes an identity and gives a function that opens buckets as it."""

    def make(name: str, policy: dict[str, object], bucket: str) -> Callable[[str], Store]:
        user = f"{name}-{secrets.token_hex(3)}"
        server.make_user(user)
        server.set_policy(user, policy)
        key = server.make_key(user, bucket)
        return lambda where: Store(where, s3_server.endpoint, s3_server.region, key.access_key, key.secret_key)

    return make


def refused(call: Callable[[], object]) -> None:
    with pytest.raises(RefusedError):
        call()


def test_a_run_uses_the_data_bucket_and_cannot_touch_models(identity: Opener, buckets: Buckets, server: IdentityServer) -> None:
    other = Buckets.of(f"t{secrets.token_hex(3)}", "tabular")
    server.make_bucket(other.data)
    open_as = identity("run", run_policy(buckets), buckets.data)
    data, models = open_as(buckets.data), open_as(buckets.models)
    data.put_json("runs/a/plan.json", {}, if_none_match=True)
    assert data.get_json("runs/a/plan.json") == {}
    assert [info.key for info in data.list("runs/")] == ["runs/a/plan.json"]
    data.delete("runs/a/plan.json")
    refused(lambda: models.put("m/champion.json", b"{}"))
    refused(lambda: models.get("m/champion.json"))
    refused(lambda: list(models.list("")))
    for call in (lambda: open_as(other.data).put("x", b""), lambda: list(open_as(other.data).list(""))):
        refused(call)


def test_multipart_is_part_of_writing(identity: Opener, buckets: Buckets, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(b"x" * (9 << 20))
    identity("run", run_policy(buckets), buckets.data)(buckets.data).upload_file(big, "runs/a/saved_model/big")
    identity("export", export_policy(buckets), buckets.data)(buckets.models).upload_file(big, "m/1/big")


def test_export_reads_data_writes_runs_and_alone_writes_models(identity: Opener, buckets: Buckets, server: IdentityServer) -> None:
    admin_like = identity("run", run_policy(buckets), buckets.data)(buckets.data)
    admin_like.put("datasets/d/shard", b"s")
    open_as = identity("export", export_policy(buckets), buckets.data)
    data, models = open_as(buckets.data), open_as(buckets.models)
    assert data.get("datasets/d/shard") == b"s"
    data.put_json("runs/a/result.json", {"outcome": "exported"})
    refused(lambda: data.put("datasets/d/shard", b"forged"))
    refused(lambda: data.put("code/p/newest.json", b"forged"))
    refused(lambda: data.delete("datasets/d/shard"))
    etag = models.put_json("m/champion.json", {"version": 1}, if_none_match=True)
    models.put_json("m/champion.json", {"version": 2}, if_match=etag)
    assert [info.key for info in models.list("m/")] == ["m/champion.json"]


def test_upkeep_ends_uploads_and_writes_results_of_runs_only(identity: Opener, buckets: Buckets, s3_server: S3Server) -> None:
    upkeep = identity("upkeep", upkeep_policy([buckets.data]), buckets.data)(buckets.data)
    s3_server.client().create_multipart_upload(Bucket=buckets.data, Key="runs/a/saved_model/x")
    assert upkeep.abort_uploads("runs/a/") == 1
    upkeep.put_json("runs/a/result.json", {"outcome": "failed"}, if_none_match=True)
    assert upkeep.get_json("runs/a/spec.json") is None
    refused(lambda: upkeep.put("datasets/x", b""))
    refused(lambda: list(identity("upkeep", upkeep_policy([buckets.data]), buckets.data)(buckets.models).list("")))


def test_no_identity_of_ours_may_make_users_or_buckets(
    identity: Opener, buckets: Buckets, s3_server: S3Server, server: IdentityServer
) -> None:
    as_run = identity("run", run_policy(buckets), buckets.data)(buckets.data)
    thief = IdentityServer(Credentials(s3_server.endpoint, as_run.access_key, as_run.secret_key), s3_server.region)
    refused(lambda: thief.make_user("thief"))
    refused(lambda: thief.make_bucket("thief-bucket"))
    user = next(user for user in server.users() if as_run.access_key in server.keys(user))
    refused(lambda: thief.set_policy(user, export_policy(buckets)))


def test_making_twice_changes_nothing(server: IdentityServer, buckets: Buckets) -> None:
    user = f"run-{secrets.token_hex(3)}"
    assert server.policy(user) is None
    for _ in range(2):
        server.make_bucket(buckets.data)
        server.make_user(user)
        server.set_policy(user, run_policy(buckets))
    assert server.policy(user) == run_policy(buckets)
    assert user in server.users()
    assert {buckets.data, buckets.models} <= server.buckets()
    assert server.keys(user) == frozenset()


def test_a_key_that_is_dropped_is_dead_and_the_kept_one_lives(server: IdentityServer, buckets: Buckets) -> None:
    user = f"run-{secrets.token_hex(3)}"
    server.make_user(user)
    server.set_policy(user, run_policy(buckets))
    old, new = server.make_key(user, buckets.data), server.make_key(user, buckets.data)
    assert server.drop_keys(user, keep=str(new.access_key)) == 1
    assert not server.accepts(old, buckets.data)
    assert server.accepts(new, buckets.data)
    assert server.keys(user) == {new.access_key}
    wrong = Credentials(new.endpoint, new.access_key, "not-the-secret")
    assert not server.accepts(wrong, buckets.data)
