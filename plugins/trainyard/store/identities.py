"""Buckets and identities on an S3 server that is ours to manage (``s3: {mode: managed}``).

Through the IAM API that SeaweedFS serves on its S3 port (and AWS elsewhere): users, one inline policy each, access keys. What it takes
works at once and is kept over restarts (measured on 4.48). A secret is shown once, when its key is made: whoever asks keeps it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from trainyard.contract import names
from trainyard.errors import RefusedError, UnavailableError
from trainyard.store.clients import client, code_of, translated
from trainyard.store.opening import Credentials

POLICY_NAME: Final = "trainyard"
KEY_ACCEPTED_S: Final = 15.0
"""How long a new key may take until the server knows it (milliseconds, as measured)."""
_READ: Final = ["s3:GetObject"]
_WRITE: Final = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]


@dataclass(frozen=True)
class Buckets:
    """The two buckets of a tenant."""

    data: str
    models: str

    @classmethod
    def of(cls, prefix: str, tenant: str) -> Buckets:
        return cls(names.data_bucket(prefix, tenant), names.models_bucket(prefix, tenant))


def _statement(actions: list[str], *resources: str) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": actions, "Resource": [f"arn:aws:s3:::{resource}" for resource in resources]}


def _policy(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def run_policy(buckets: Buckets) -> dict[str, Any]:
    """Steps and replicas, which run users' code: the data bucket, and nothing of the models."""
    return _policy(_statement(["s3:ListBucket"], buckets.data), _statement(_WRITE, f"{buckets.data}/*"))


def export_policy(buckets: Buckets) -> dict[str, Any]:
    """Gate and export, which run no user code: read data, write into ``runs/``, and alone write models."""
    return _policy(
        _statement(["s3:ListBucket"], buckets.data, buckets.models),
        _statement(_READ, f"{buckets.data}/*"),
        _statement(_WRITE, f"{buckets.data}/runs/*", f"{buckets.models}/*"),
    )


def upkeep_policy(data_buckets: list[str]) -> dict[str, Any]:
    """``clean_up``: what belongs to runs, of every tenant."""
    listed = sorted(data_buckets)
    # SeaweedFS knows no action of its own for the list of multipart uploads: of the actions it takes, List* alone allows it (measured).
    return _policy(_statement(["s3:List*"], *listed), _statement(_WRITE, *(f"{bucket}/runs/*" for bucket in listed)))


def _lists(policy: dict[str, Any]) -> dict[str, Any]:
    """The policy with every one-element list as a list: servers give those back as the element."""
    statements = [
        {key: [value] if key in ("Action", "Resource") and isinstance(value, str) else value for key, value in statement.items()}
        for statement in policy["Statement"]
    ]
    return {**policy, "Statement": statements}


class IdentityServer:
    """The administrator's side of a managed S3 server. Every method may raise RefusedError and UnavailableError."""

    def __init__(self, admin: Credentials, region: str) -> None:
        self._admin = admin
        self._region = region

    # ------------------------------------------------------------------------------------------------------------ buckets
    def buckets(self) -> frozenset[str]:
        """All there are."""
        with self._translated("the list of buckets"):
            return frozenset(bucket["Name"] for bucket in self._s3().list_buckets()["Buckets"])

    def make_bucket(self, name: str) -> None:
        """There already is no error."""
        from botocore.exceptions import ClientError

        with self._translated(f"bucket {name}"):
            try:
                self._s3().create_bucket(Bucket=name)
            except ClientError as error:
                if code_of(error) not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
                    raise

    # -------------------------------------------------------------------------------------------------------------- users
    def users(self) -> frozenset[str]:
        """All there are."""
        with self._translated("the list of S3 identities"):
            pages = self._iam().get_paginator("list_users").paginate()
            return frozenset(user["UserName"] for page in pages for user in page["Users"])

    def make_user(self, user: str) -> None:
        """There already is no error."""
        from botocore.exceptions import ClientError

        with self._translated(f"S3 identity {user}"):
            try:
                self._iam().create_user(UserName=user)
            except ClientError as error:
                if code_of(error) not in ("EntityAlreadyExists", "EntityAlreadyExistsException"):
                    raise

    def policy(self, user: str) -> dict[str, Any] | None:
        """The identity's policy; None where it has none (or is none)."""
        from botocore.exceptions import ClientError

        with self._translated(f"policy of S3 identity {user}"):
            try:
                document = self._iam().get_user_policy(UserName=user, PolicyName=POLICY_NAME)["PolicyDocument"]
            except ClientError as error:
                if code_of(error) in ("NoSuchEntity", "NoSuchEntityException"):
                    return None
                raise
        return _lists(json.loads(document) if isinstance(document, str) else document)

    def set_policy(self, user: str, policy: Mapping[str, Any]) -> None:
        """What the identity may, in place of what it might before."""
        with self._translated(f"policy of S3 identity {user}"):
            self._iam().put_user_policy(UserName=user, PolicyName=POLICY_NAME, PolicyDocument=json.dumps(policy))

    # --------------------------------------------------------------------------------------------------------------- keys
    def keys(self, user: str) -> frozenset[str]:
        """The identity's access keys (their public half)."""
        with self._translated(f"keys of S3 identity {user}"):
            return frozenset(key["AccessKeyId"] for key in self._iam().list_access_keys(UserName=user)["AccessKeyMetadata"])

    def accepts(self, identity: Credentials, bucket: str) -> bool:
        """Whether the server knows this key *and* its secret: one request to ``bucket``, which the identity may list."""
        try:
            with self._translated(f"bucket {bucket}"):
                self._s3(identity).list_objects_v2(Bucket=bucket, MaxKeys=1)
        except RefusedError:
            return False
        return True

    def make_key(self, user: str, bucket: str) -> Credentials:
        """A new key, returned once the server takes it.

        Raises:
            UnavailableError: not taken within 15 s.
        """
        with self._translated(f"key of S3 identity {user}"):
            made = self._iam().create_access_key(UserName=user)["AccessKey"]
        identity = replace(self._admin, access_key=made["AccessKeyId"], secret_key=made["SecretAccessKey"])
        ends = time.monotonic() + KEY_ACCEPTED_S
        while not self.accepts(identity, bucket):
            if time.monotonic() > ends:
                raise UnavailableError(f"S3 at {self._admin.endpoint} does not take the new key of {user} after {KEY_ACCEPTED_S:.0f} s")
            time.sleep(0.2)
        return identity

    def drop_keys(self, user: str, keep: str) -> int:
        """Remove all the identity's keys but one, and return their number."""
        others = self.keys(user) - {keep}
        for key in sorted(others):
            with self._translated(f"key of S3 identity {user}"):
                self._iam().delete_access_key(UserName=user, AccessKeyId=key)
        return len(others)

    # ------------------------------------------------------------------------------------------------------------- inside
    def _s3(self, who: Credentials | None = None) -> Any:
        return self._client("s3", who or self._admin)

    def _iam(self) -> Any:
        return self._client("iam", self._admin)

    def _client(self, service: str, who: Credentials) -> Any:
        return client(service, self._admin.endpoint, self._region, who.access_key, who.secret_key, ca_bundle=self._admin.ca_bundle)

    def _translated(self, what: str) -> Any:
        return translated(what, self._admin.endpoint)
