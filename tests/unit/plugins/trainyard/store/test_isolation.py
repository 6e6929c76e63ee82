"""What tenant A's pods may try on tenant B's objects with the keys that they hold: refused by a real server, each (docs/isolation.md)."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import httpx
import pytest
from botocore.client import Config
from botocore.exceptions import ClientError

from tests.fixtures.s3 import S3Server
from trainyard.store import Credentials, Store
from trainyard.store.identities import Buckets, IdentityServer, export_policy, run_policy

SECRET = "datasets/d/1.0.0/l/shards/train-00000-of-00001.tfrecord"


@dataclass
class Attempt:
    """A's identity and B's buckets."""

    s3: Any
    """boto3, as a pod would use it: nothing of ours between."""
    mine: Buckets
    theirs: Buckets


@pytest.fixture(scope="module")
def site(s3_server: S3Server) -> tuple[IdentityServer, Buckets, Buckets, Store]:
    """Two tenants with objects in all four buckets; and B's data bucket as the administrator sees it."""
    server = IdentityServer(Credentials(s3_server.endpoint, s3_server.access_key, s3_server.secret_key), s3_server.region)
    prefix = f"i{secrets.token_hex(3)}"
    mine, theirs = Buckets.of(prefix, "vision"), Buckets.of(prefix, "tabular")
    for bucket in (mine.data, mine.models, theirs.data, theirs.models):
        server.make_bucket(bucket)
    as_admin = Store(theirs.data, s3_server.endpoint, s3_server.region, s3_server.access_key, s3_server.secret_key)
    as_admin.put(SECRET, b"theirs")
    Store(theirs.models, s3_server.endpoint, s3_server.region, s3_server.access_key, s3_server.secret_key).put("m/champion.json", b"{}")
    return server, mine, theirs, as_admin


@pytest.fixture(scope="module", params=["run", "export"])
def attempt(request: pytest.FixtureRequest, s3_server: S3Server, site: tuple[IdentityServer, Buckets, Buckets, Store]) -> Iterator[Attempt]:
    """With the keys of A's steps, and with those of A's gate and export."""
    server, mine, theirs, as_admin = site
    user = f"{request.param}-{secrets.token_hex(3)}"
    server.make_user(user)
    server.set_policy(user, {"run": run_policy, "export": export_policy}[request.param](mine))
    key = server.make_key(user, mine.data)
    s3 = boto3.client(
        "s3",
        endpoint_url=s3_server.endpoint,
        region_name=s3_server.region,
        aws_access_key_id=key.access_key,
        aws_secret_access_key=key.secret_key,
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, request_checksum_calculation="when_required"),
    )
    s3.put_object(Bucket=mine.data, Key="runs/r/mine", Body=b"mine")  # the keys work: what follows is refused for its target
    yield Attempt(s3, mine, theirs)
    assert as_admin.get(SECRET) == b"theirs"
    assert [info.key for info in as_admin.list("")] == [SECRET]


ATTEMPTS: dict[str, Callable[[Attempt], object]] = {
    "list": lambda a: a.s3.list_objects_v2(Bucket=a.theirs.data),
    "list a folder": lambda a: a.s3.list_objects_v2(Bucket=a.theirs.data, Prefix="datasets/"),
    "list with the old call": lambda a: a.s3.list_objects(Bucket=a.theirs.data),
    "list uploads": lambda a: a.s3.list_multipart_uploads(Bucket=a.theirs.data),
    "read": lambda a: a.s3.get_object(Bucket=a.theirs.data, Key=SECRET),
    "head": lambda a: a.s3.head_object(Bucket=a.theirs.data, Key=SECRET),
    "write": lambda a: a.s3.put_object(Bucket=a.theirs.data, Key="runs/x", Body=b"x"),
    "overwrite": lambda a: a.s3.put_object(Bucket=a.theirs.data, Key=SECRET, Body=b"x"),
    "begin an upload": lambda a: a.s3.create_multipart_upload(Bucket=a.theirs.data, Key="runs/x"),
    "delete": lambda a: a.s3.delete_object(Bucket=a.theirs.data, Key=SECRET),
    "copy out": lambda a: a.s3.copy_object(Bucket=a.mine.data, Key="runs/r/copy", CopySource=f"{a.theirs.data}/{SECRET}"),
    "copy in": lambda a: a.s3.copy_object(Bucket=a.theirs.data, Key=SECRET, CopySource=f"{a.mine.data}/runs/r/mine"),
    "read a model": lambda a: a.s3.get_object(Bucket=a.theirs.models, Key="m/champion.json"),
    "overwrite a champion": lambda a: a.s3.put_object(Bucket=a.theirs.models, Key="m/champion.json", Body=b"{}"),
    "delete the bucket": lambda a: a.s3.delete_bucket(Bucket=a.theirs.data),
    "open the bucket to all": lambda a: a.s3.put_bucket_policy(Bucket=a.theirs.data, Policy="{}"),
    "climb out by the key": lambda a: a.s3.get_object(Bucket=a.mine.data, Key=f"../{a.theirs.data}/{SECRET}"),
}


@pytest.mark.parametrize("what", ATTEMPTS)
def test_another_tenants_objects_are_refused(attempt: Attempt, what: str) -> None:
    with pytest.raises(ClientError) as refused:
        ATTEMPTS[what](attempt)
    status = refused.value.response["ResponseMetadata"]["HTTPStatusCode"]
    assert status in ((403, 404, 400) if what == "climb out by the key" else (403,)), refused.value


def test_many_at_once_are_refused_one_by_one(attempt: Attempt) -> None:
    """S3's answer to this call is 200 with an error for each key; a server may refuse the whole. The fixture looks what became of them."""
    with contextlib.suppress(ClientError):
        answer = attempt.s3.delete_objects(Bucket=attempt.theirs.data, Delete={"Objects": [{"Key": SECRET}]})
        assert not answer.get("Deleted")


def test_the_list_of_buckets_names_no_other_tenants(attempt: Attempt) -> None:
    try:
        found = {bucket["Name"] for bucket in attempt.s3.list_buckets()["Buckets"]}
    except ClientError:
        return
    assert not found & {attempt.theirs.data, attempt.theirs.models}


def test_without_keys_nothing_is_open(s3_server: S3Server, site: tuple[IdentityServer, Buckets, Buckets, Store]) -> None:
    theirs = site[2]
    for method, path in (("GET", f"/{theirs.data}"), ("GET", f"/{theirs.data}/{SECRET}"), ("PUT", f"/{theirs.data}/x"), ("GET", "/")):
        assert httpx.request(method, s3_server.endpoint + path, content=b"x" if method == "PUT" else None).status_code == 403, path
