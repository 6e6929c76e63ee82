"""Objects of one bucket: whole, verified, and never half-visible.

Every file of ours is known by ``File`` (key, size, SHA-256). Uploads carry the SHA-256 as metadata, so that "is it there already?"
needs no download; downloads are checked byte by byte and appear under their name only when they are whole.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trainer.errors import ConflictError, DataError, StorageError
from trainer.storage.client import MissingError, call

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

SHA256_METADATA: Final = "sha256"
PART_BYTES: Final = 32 * 1024 * 1024
"""Files above this are uploaded in parts of this size (S3's own least is 5 MiB)."""
_READ_BYTES: Final = 1024 * 1024


@dataclass(frozen=True)
class File:
    """One stored file as markers record it."""

    key: str
    size: int
    sha256: str
    examples: int | None = None
    """Number of examples in it, for shard files."""

    @classmethod
    def of(cls, key: str, data: bytes) -> File:
        """The record of an object with these bytes."""
        return cls(key=key, size=len(data), sha256=hashlib.sha256(data).hexdigest())

    @property
    def name(self) -> str:
        return self.key.rsplit("/", 1)[-1]

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"key": self.key, "size": self.size, "sha256": self.sha256}
        return document if self.examples is None else {**document, "examples": self.examples}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> File:
        return cls(key=document["key"], size=int(document["size"]), sha256=document["sha256"], examples=document.get("examples"))


@dataclass(frozen=True)
class Head:
    """What S3 says about an object without its bytes."""

    key: str
    size: int
    etag: str
    sha256: str | None
    """As whoever uploaded it recorded it; None for objects that are not ours."""


class Bucket:
    """One bucket. All errors are of ``trainer.errors``; safe to use from several threads."""

    def __init__(self, client: S3Client, name: str) -> None:
        self.client = client
        self.name = name
        self.endpoint = client.meta.endpoint_url

    def __repr__(self) -> str:
        return f"Bucket({self.name!r} at {self.endpoint})"

    def url(self, key: str) -> str:
        return f"s3://{self.name}/{key}"

    # ------------------------------------------------------------------------------------------------------------ small objects

    def get(self, key: str) -> bytes | None:
        """The object's bytes, None if there is none."""
        found = self.get_with_etag(key)
        return None if found is None else found[0]

    def get_with_etag(self, key: str) -> tuple[bytes, str] | None:
        """The object's bytes and the ETag that ``put(if_match=…)`` wants."""

        def read() -> tuple[bytes, str]:
            response = self.client.get_object(Bucket=self.name, Key=key)
            with response["Body"] as body:
                return body.read(), response["ETag"]

        try:
            return self._call(f"get {self.url(key)}", read)
        except MissingError:
            return None

    def get_json(self, key: str) -> Any | None:
        """The JSON document, None if there is none.

        Raises:
            DataError: there is an object and it is not JSON.
        """
        found = self.get(key)
        return None if found is None else self._parse(key, found)

    def get_json_with_etag(self, key: str) -> tuple[Any, str] | None:
        found = self.get_with_etag(key)
        return None if found is None else (self._parse(key, found[0]), found[1])

    def put(
        self,
        key: str,
        data: bytes,
        *,
        if_match: str | None = None,
        if_absent: bool = False,
        content_type: str = "application/octet-stream",
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Writes the object and gives its ETag; with a condition, only while the condition holds.

        Note for conditional writes: a retry inside the client after a lost answer may report a conflict with our own write, so who
        catches ``ConflictError`` reads what is there before concluding that somebody else was first.

        Raises:
            ConflictError: ``if_match`` is no longer the object's ETag, or ``if_absent`` and there is one.
        """
        conditions: dict[str, Any] = {}
        if if_match is not None:
            conditions["IfMatch"] = if_match
        if if_absent:
            conditions["IfNoneMatch"] = "*"
        return self._call(
            f"put {self.url(key)}",
            lambda: self.client.put_object(
                Bucket=self.name,
                Key=key,
                Body=data,
                ContentType=content_type,
                Metadata=dict(metadata or {}),
                ContentMD5=_md5(data),
                **conditions,
            )["ETag"],
        )

    def put_json(self, key: str, document: Any, *, if_match: str | None = None, if_absent: bool = False) -> str:
        """Writes a JSON document (keys sorted, so equal documents are equal bytes) and gives its ETag."""
        return self.put(key, encode(document), if_match=if_match, if_absent=if_absent, content_type="application/json")

    def head(self, key: str) -> Head | None:
        try:
            response = self._call(f"head {self.url(key)}", lambda: self.client.head_object(Bucket=self.name, Key=key))
        except MissingError:
            return None
        return Head(
            key=key, size=response["ContentLength"], etag=response["ETag"], sha256=response.get("Metadata", {}).get(SHA256_METADATA)
        )

    def exists(self, key: str) -> bool:
        return self.head(key) is not None

    def list(self, prefix: str) -> Iterator[tuple[str, int, float]]:
        """``(key, size, last modified in epoch seconds)`` of every object under the prefix, by key."""
        token: dict[str, Any] = {}
        while True:
            page = self._call(
                f"list {self.url(prefix)}", lambda token=token: self.client.list_objects_v2(Bucket=self.name, Prefix=prefix, **token)
            )
            for item in page.get("Contents", []):
                yield item["Key"], item["Size"], item["LastModified"].timestamp()
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def delete(self, key: str) -> None:
        """Deletes the object; one that is not there is no error."""
        try:
            self._call(f"delete {self.url(key)}", lambda: self.client.delete_object(Bucket=self.name, Key=key))
        except MissingError:
            pass

    def delete_prefix(self, prefix: str) -> int:
        """Deletes every object under the prefix and gives their number."""
        count = 0
        for key, _, _ in list(self.list(prefix)):
            self.delete(key)
            count += 1
        return count

    # ------------------------------------------------------------------------------------------------------------ files

    def upload(self, path: Path, key: str, *, examples: int | None = None) -> File:
        """Uploads a file and gives its record; one that is there already with the same size and SHA-256 is left alone.

        Raises:
            StorageError: S3 failed, or the file changed while it was read.
        """
        size, sha256 = path.stat().st_size, sha256_of(path)
        file = File(key=key, size=size, sha256=sha256, examples=examples)
        there = self.head(key)
        if there is not None and there.size == size and there.sha256 == sha256:
            return file
        if size <= PART_BYTES:
            data = path.read_bytes()
            if hashlib.sha256(data).hexdigest() != sha256:
                raise StorageError(f"put {self.url(key)}: {path} changed while it was read")
            self.put(key, data, metadata={SHA256_METADATA: sha256})
        else:
            self._upload_parts(path, key, sha256)
        return file

    def _upload_parts(self, path: Path, key: str, sha256: str) -> None:
        target: dict[str, Any] = {"Bucket": self.name, "Key": key}
        what = f"put {self.url(key)}"
        upload_id = self._call(what, lambda: self.client.create_multipart_upload(**target, Metadata={SHA256_METADATA: sha256}))["UploadId"]
        try:
            parts: list[Any] = []
            seen = hashlib.sha256()
            with path.open("rb") as stream:
                while block := stream.read(PART_BYTES):
                    seen.update(block)
                    part: dict[str, Any] = {"PartNumber": len(parts) + 1, "Body": block, "ContentMD5": _md5(block)}
                    answer = self._call(what, lambda part=part: self.client.upload_part(**target, UploadId=upload_id, **part))
                    parts.append({"ETag": answer["ETag"], "PartNumber": part["PartNumber"]})
            if seen.hexdigest() != sha256:
                raise StorageError(f"{what}: {path} changed while it was read")
            self._call(what, lambda: self.client.complete_multipart_upload(**target, UploadId=upload_id, MultipartUpload={"Parts": parts}))
        except BaseException:
            # Parts of an upload that was not completed cost room and are seen by nobody.
            try:
                self.client.abort_multipart_upload(**target, UploadId=upload_id)
            except Exception:
                pass
            raise

    def download(self, file: File, path: Path, *, attempts: int = 3) -> Path:
        """Fetches a file to ``path``, checked; it appears under that name only when it is whole.

        One that is there already is checked, not fetched.

        Raises:
            DataError: its bytes do not match size and SHA-256 in ``attempts`` tries, or it is not there.
            StorageError: S3 does not answer.
        """
        if path.is_file() and path.stat().st_size == file.size and sha256_of(path) == file.sha256:
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        problem = ""
        try:
            for attempt in range(attempts):
                if attempt:
                    time.sleep(min(2**attempt, 5) / 2)
                try:
                    size, sha256 = self._fetch(file.key, partial)
                except MissingError as error:
                    raise DataError(f"{self.url(file.key)} is not there, though it was recorded with {file.size} bytes") from error
                if (size, sha256) == (file.size, file.sha256):
                    os.replace(partial, path)
                    return path
                problem = f"{size} bytes with SHA-256 {sha256[:12]}…"
        finally:
            partial.unlink(missing_ok=True)
        raise DataError(
            f"{self.url(file.key)} is not what was recorded: expected {file.size} bytes with SHA-256 {file.sha256[:12]}…, "
            f"got {problem} in {attempts} tries"
        )

    def _fetch(self, key: str, path: Path) -> tuple[int, str]:
        def read() -> tuple[int, str]:
            response = self.client.get_object(Bucket=self.name, Key=key)
            digest, size = hashlib.sha256(), 0
            with response["Body"] as body, path.open("wb") as out:
                while block := body.read(_READ_BYTES):
                    digest.update(block)
                    size += len(block)
                    out.write(block)
            return size, digest.hexdigest()

        # The client retries the request, not the body: a connection that breaks in the middle is ours to repeat.
        for attempt in range(3):
            try:
                return self._call(f"get {self.url(key)}", read)
            except MissingError:
                raise
            except StorageError:
                if attempt == 2:
                    raise
        raise AssertionError("unreachable")

    def _parse(self, key: str, data: bytes) -> Any:
        try:
            return json.loads(data)
        except ValueError as error:
            raise DataError(f"{self.url(key)} is not JSON: {error}") from error

    def _call(self, what: str, function: Any) -> Any:
        return call(self.endpoint, what, function)


def encode(document: Any) -> bytes:
    """JSON bytes with sorted keys: equal documents are equal bytes."""
    return (json.dumps(document, sort_keys=True, indent=1, ensure_ascii=False) + "\n").encode()


def sha256_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


__all__ = ["Bucket", "ConflictError", "File", "Head", "MissingError", "encode", "sha256_of"]
