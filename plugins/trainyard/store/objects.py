"""One bucket: its objects, JSON documents with compare-and-swap, and presigned links.

Conditional writes are never repeated by the client underneath: a PUT whose answer was lost may have been done, and the repetition
would then be refused as if by another writer. Such a write raises UnavailableError and the caller reads what is there.
An ETag is a digest of the bytes: a document that is to be moved by compare-and-swap needs a value that never comes back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from trainyard.errors import NotFoundError, UnavailableError
from trainyard.store.clients import TRIES, is_absent, s3_client, translated

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

LINK_SECONDS: Final = 3600
"""How long a presigned link is good."""
_DELETE_AT_ONCE: Final = 1000


@dataclass(frozen=True)
class ObjectInfo:
    """What S3 says of an object without its bytes."""

    key: str
    size: int
    etag: str
    modified: datetime


@dataclass(frozen=True)
class Store:
    """One bucket, seen with one identity."""

    bucket: str
    endpoint: str | None
    """URL of the server; None is AWS' own."""
    region: str
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    ca_bundle: str | None = None
    """PEM file of the server's authorities; None: those that boto3 finds."""
    public_endpoint: str | None = None
    """URL of the server as people reach it, for links; None: the same."""

    # ------------------------------------------------------------------------------------------------------------ reading
    def get(self, key: str) -> bytes:
        """The object's bytes. Raises NotFoundError, RefusedError, UnavailableError."""
        return self._get(key)[0]

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """At most ``length`` bytes from ``start``; empty beyond the end. Raises as :meth:`get`."""
        from botocore.exceptions import ClientError

        if length <= 0:
            return b""
        with self._translated(key):
            try:
                answer = self._client().get_object(Bucket=self.bucket, Key=key, Range=f"bytes={start}-{start + length - 1}")
            except ClientError as error:
                if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 416:
                    return b""
                raise
            return self._body(key, answer)

    def get_json(self, key: str) -> Any | None:
        """The document, or None where there is none. Raises RefusedError, UnavailableError (also for what is no JSON)."""
        found = self.get_json_with_etag(key)
        return None if found is None else found[0]

    def get_json_with_etag(self, key: str) -> tuple[Any, str] | None:
        """The document and its ETag for a later ``put_json(if_match=…)``; None where there is none. Raises as :meth:`get_json`."""
        try:
            body, etag = self._get(key)
        except NotFoundError:
            return None
        try:
            return json.loads(body), etag
        except ValueError as error:
            raise UnavailableError(f"{self._name(key)}: is not JSON ({error}): something else than Trainyard wrote it") from error

    def head(self, key: str) -> ObjectInfo | None:
        """Size and ETag, or None where there is no object."""
        from botocore.exceptions import ClientError

        with self._translated(key):
            try:
                answer = self._client().head_object(Bucket=self.bucket, Key=key)
            except ClientError as error:
                if is_absent(error):
                    return None
                raise
        return ObjectInfo(key, answer["ContentLength"], answer["ETag"], answer["LastModified"])

    def exists(self, key: str) -> bool:
        return self.head(key) is not None

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        """Every object under ``prefix`` in key order; only keys after ``after`` if given."""
        arguments: dict[str, Any] = {"Bucket": self.bucket, "Prefix": prefix}
        if after is not None:
            arguments["StartAfter"] = after
        with self._translated(prefix):
            for page in self._client().get_paginator("list_objects_v2").paginate(**arguments):
                for item in page.get("Contents", ()):
                    yield ObjectInfo(item["Key"], item["Size"], item["ETag"], item["LastModified"])

    def list_folders(self, prefix: str) -> Iterator[str]:
        """Names directly under ``prefix`` (which ends in ``/`` or is empty) that hold further objects: ``runs/`` → run names."""
        with self._translated(prefix):
            pages = self._client().get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix, Delimiter="/")
            for page in pages:
                for item in page.get("CommonPrefixes", ()):
                    yield item["Prefix"][len(prefix) :].rstrip("/")

    def download_file(self, key: str, path: Path) -> None:
        """The object's bytes into ``path``, which is there whole or not at all. Raises as :meth:`get`."""
        part = path.with_name(f".{path.name}.part")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._translated(key):
                self._client().download_file(self.bucket, key, str(part))
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    # ------------------------------------------------------------------------------------------------------------ writing
    def put(
        self, key: str, body: bytes, *, if_match: str | None = None, if_none_match: bool = False, content_type: str | None = None
    ) -> str:
        """Write the object and return its ETag.

        Args:
            key: the object's key.
            body: its bytes.
            if_match: write only over the object with this ETag.
            if_none_match: write only where there is no object.
            content_type: the header that readers get.

        Raises:
            ConflictError: the condition does not hold.
            RefusedError, UnavailableError: see :func:`trainyard.store.clients.translated`.
        """
        arguments: dict[str, Any] = {"Bucket": self.bucket, "Key": key, "Body": body}
        if if_match is not None:
            arguments["IfMatch"] = if_match
        if if_none_match:
            arguments["IfNoneMatch"] = "*"
        if content_type is not None:
            arguments["ContentType"] = content_type
        conditional = if_match is not None or if_none_match
        with self._translated(key):
            return self._client(tries=1 if conditional else None).put_object(**arguments)["ETag"]

    def put_json(self, key: str, value: Any, *, if_match: str | None = None, if_none_match: bool = False) -> str:
        """Write a document (keys sorted) and return its ETag. Arguments and errors as :meth:`put`."""
        body = json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False).encode()
        return self.put(key, body, if_match=if_match, if_none_match=if_none_match, content_type="application/json")

    def upload_file(self, path: Path, key: str) -> None:
        """The file's bytes as an object, in parts if it is large."""
        with self._translated(key):
            self._client().upload_file(str(path), self.bucket, key)

    def delete(self, key: str) -> None:
        """Remove the object; none there is no error."""
        with self._translated(key):
            self._client().delete_object(Bucket=self.bucket, Key=key)

    def delete_prefix(self, prefix: str) -> int:
        """Remove every object under ``prefix`` (never the whole bucket) and return their number."""
        if not prefix.strip("/"):
            raise ValueError("delete_prefix() of a whole bucket is never meant")
        keys = [info.key for info in self.list(prefix)]
        for start in range(0, len(keys), _DELETE_AT_ONCE):
            batch = keys[start : start + _DELETE_AT_ONCE]
            with self._translated(prefix):
                answer = self._client().delete_objects(
                    Bucket=self.bucket, Delete={"Objects": [{"Key": key} for key in batch], "Quiet": True}
                )
            if failed := answer.get("Errors"):
                raise UnavailableError(f"{self._name(prefix)}: {len(failed)} objects could not be deleted: {failed[0].get('Message')}")
        return len(keys)

    def abort_uploads(self, prefix: str, *, older_than: timedelta | None = None, dry_run: bool = False) -> int:
        """End multipart uploads under ``prefix`` that nobody will complete, and return their number.

        Args:
            prefix: where keys begin.
            older_than: only those that began longer ago, by this machine's clock.
            dry_run: only count them.
        """
        from botocore.exceptions import ClientError

        latest = None if older_than is None else datetime.now(UTC) - older_than
        ended = 0
        with self._translated(prefix):
            for page in self._client().get_paginator("list_multipart_uploads").paginate(Bucket=self.bucket, Prefix=prefix):
                for upload in page.get("Uploads", ()):
                    if latest is not None and upload["Initiated"] > latest:
                        continue
                    try:
                        if not dry_run:
                            self._client().abort_multipart_upload(Bucket=self.bucket, Key=upload["Key"], UploadId=upload["UploadId"])
                        ended += 1
                    except ClientError as error:
                        if not is_absent(error):  # completed or ended by its owner since the listing
                            raise
        return ended

    # ------------------------------------------------------------------------------------------------------------- links
    def presign(
        self,
        key: str,
        *,
        method: Literal["GET", "PUT"] = "GET",
        seconds: int = LINK_SECONDS,
        endpoint: str | None = None,
        file_name: str | None = None,
    ) -> str:
        """A link by which anyone may read (or write) this one object for ``seconds``.

        ``endpoint`` is the server's URL as the link's user reaches it, where that is not :attr:`public_endpoint`: the signature covers
        the host's name.
        """
        arguments: dict[str, Any] = {"Bucket": self.bucket, "Key": key}
        if file_name is not None and method == "GET":
            arguments["ResponseContentDisposition"] = f'attachment; filename="{file_name}"'
        client = s3_client(endpoint or self.public_endpoint or self.endpoint, self.region, self.access_key, self.secret_key)
        with self._translated(key):
            return client.generate_presigned_url("get_object" if method == "GET" else "put_object", Params=arguments, ExpiresIn=seconds)

    # ------------------------------------------------------------------------------------------------------------ inside
    def _client(self, tries: int | None = None) -> S3Client:
        return s3_client(self.endpoint, self.region, self.access_key, self.secret_key, tries or TRIES, self.ca_bundle)

    def _get(self, key: str) -> tuple[bytes, str]:
        with self._translated(key):
            answer = self._client().get_object(Bucket=self.bucket, Key=key)
            return self._body(key, answer), answer["ETag"]

    def _body(self, key: str, answer: Any) -> bytes:
        from urllib3.exceptions import HTTPError

        try:
            body: bytes = answer["Body"].read()
        except (HTTPError, OSError) as error:
            raise UnavailableError(f"{self._name(key)}: the answer of {self.endpoint or 'AWS S3'} broke off: {error}") from error
        return body

    def _name(self, key: str) -> str:
        return f"s3://{self.bucket}/{key}"

    def _translated(self, key: str) -> Any:
        return translated(self._name(key), self.endpoint)
