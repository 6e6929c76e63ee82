"""The S3 client: one place for time-outs, retries, addressing and the translation of boto3's errors into ours.

Works with any S3 that knows conditional writes (``If-Match``, ``If-None-Match`` on PUT): AWS, SeaweedFS ≥ 3.9x, MinIO.
boto3 costs about half a second and is imported by ``connect`` only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from trainer.errors import ConflictError, StorageError
from trainer.spec import StorageSpec

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

T = TypeVar("T")

_MISSING = frozenset({"404", "NoSuchKey"})
# 409 ConditionalRequestConflict is AWS' word for two conditional writes at the same moment.
_CONFLICT = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict", "409"})


def connect(storage: StorageSpec, *, attempts: int = 6, connect_timeout_s: float = 5, read_timeout_s: float = 60) -> S3Client:
    """A client for the run's S3; credentials come from the environment (``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``).

    ``attempts`` counts the first try; waits between them grow up to 20 s, so six of them outlast a restart of the server.
    Its methods are safe to call from several threads.
    """
    import boto3
    from botocore.config import Config

    session = boto3.session.Session()
    return session.client(
        "s3",
        endpoint_url=storage.endpoint,
        region_name=storage.region,
        config=Config(
            retries={"mode": "standard", "total_max_attempts": attempts},
            connect_timeout=connect_timeout_s,
            read_timeout=read_timeout_s,
            # Bucket names in host names need DNS that a private server does not have.
            s3={"addressing_style": "path" if storage.endpoint else "auto"},
            # Checksums of ours travel as metadata and Content-MD5; the newer trailers are not understood by every server.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            max_pool_connections=16,
        ),
    )


def call(endpoint: str, what: str, function: Callable[[], T]) -> T:
    """Runs one S3 call; ``what`` names it in the error, e.g. ``get s3://bucket/key``.

    Raises:
        MissingError: the object is not there.
        ConflictError: a condition of the write did not hold.
        StorageError: anything else that S3 or the network said.
    """
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

    try:
        return function()
    except ClientError as error:
        _translate(endpoint, what, error.response, error)
    except (BotoCoreError, HTTPClientError) as error:
        raise StorageError(f"{what}: S3 at {endpoint} does not answer: {error}") from error


def _translate(endpoint: str, what: str, response: Any, error: Exception) -> NoReturn:
    code = str(response.get("Error", {}).get("Code", ""))
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if code in _MISSING:
        raise MissingError(f"{what}: no such object") from error
    if code in _CONFLICT or status == 412:
        raise ConflictError(f"{what}: somebody else wrote it first") from error
    raise StorageError(f"{what}: S3 at {endpoint} refused: {code or status}: {response.get('Error', {}).get('Message', error)}") from error


class MissingError(StorageError):
    """Raised when an object is not there; readers that can go on without it catch it here and nowhere else."""
