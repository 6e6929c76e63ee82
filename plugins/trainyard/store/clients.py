"""boto3 clients, made once for each identity, and S3's errors in Trainyard's words."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from trainyard.errors import ConflictError, NotFoundError, RefusedError, UnavailableError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

CONNECT_TIMEOUT_S: Final = 5
READ_TIMEOUT_S: Final = 30
TRIES: Final = 4
"""Of calls that may be repeated: with boto3's "standard" back-off ≈ 7 s until a server that refuses connections is given up."""

_CONFLICT: Final = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412"})
_ABSENT: Final = frozenset({"NoSuchKey", "404", "NotFound", "NoSuchUpload"})
_REFUSED: Final = frozenset({"AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch", "Forbidden"})


@functools.lru_cache(maxsize=64)
def client(
    service: str,
    endpoint: str | None,
    region: str,
    access_key: str | None,
    secret_key: str | None,
    tries: int = TRIES,
    ca_bundle: str | None = None,
) -> Any:
    """A client of ``service`` (``s3`` or ``iam``); without keys, boto3's own search for credentials is used.

    ``ca_bundle`` is a PEM file of authorities in place of those that boto3 finds (AWS_CA_BUNDLE, else the public ones).

    Clients are safe to share between threads.
    """
    import boto3
    from botocore.config import Config

    config = Config(
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        retries={"total_max_attempts": tries, "mode": "standard"},
        signature_version="s3v4" if service == "s3" else None,
        s3={"addressing_style": "path"} if endpoint else None,
        # Checksums of every body are AWS' default since 2025; other servers refuse some of them. Ours are in markers.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        max_pool_connections=20,
    )
    session: Any = boto3.session.Session()  # its overloads want a literal service name
    return session.client(
        service,
        endpoint_url=endpoint,
        region_name=region,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        config=config,
        verify=ca_bundle,
    )


def s3_client(
    endpoint: str | None,
    region: str,
    access_key: str | None,
    secret_key: str | None,
    tries: int = TRIES,
    ca_bundle: str | None = None,
) -> S3Client:
    found: S3Client = client("s3", endpoint, region, access_key, secret_key, tries, ca_bundle)
    return found


def code_of(error: Any) -> str:
    """The error code of a botocore ClientError."""
    return str(error.response.get("Error", {}).get("Code", ""))


def is_absent(error: Any) -> bool:
    return code_of(error) in _ABSENT


@contextmanager
def translated(what: str, endpoint: str | None) -> Iterator[None]:
    """Raises what boto3 raises within as ours, naming what was done and at which server.

    Raises:
        NotFoundError: no such object or bucket.
        ConflictError: a condition did not hold.
        RefusedError: these credentials may not.
        UnavailableError: no answer, or an answer that says "later".
    """
    from botocore.exceptions import BotoCoreError, ClientError

    server = endpoint or "AWS S3"
    try:
        yield
    except ClientError as error:
        code = code_of(error)
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code in _CONFLICT:
            raise ConflictError(f"{what}: another writer was first") from error
        if code in _ABSENT:
            raise NotFoundError(f"{what}: there is no such object") from error
        if code == "NoSuchBucket":
            raise NotFoundError(f"{what}: there is no such bucket at {server}: `trainyard sync` makes a tenant's buckets") from error
        if code in _REFUSED or status == 403:
            raise RefusedError(f"{what}: S3 at {server} refuses these credentials ({code})") from error
        raise UnavailableError(f"{what}: S3 at {server} answered {status} {code}: {error}") from error
    except BotoCoreError as error:
        raise UnavailableError(f"{what}: S3 at {server} does not answer: {error}") from error
