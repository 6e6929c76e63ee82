"""Secrets, config maps and service-account tokens, read from the API for one pod.

The Node authorizer lets a kubelet read only what a pod bound to its node names, and learns of a new pod a moment after the kubelet
does: a refusal here is a reason to try again, never the end of a pod.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass

from local.kubelet.api import Api, ApiError, Json

Values = dict[str, bytes]


class SourceError(Exception):
    """Something the pod refers to cannot be had (yet); the message is what a kubelet would say."""


@dataclass(frozen=True)
class Token:
    """A service-account token bound to the pod."""

    value: str
    lifetime_s: float


class Sources:
    """What one pod may read."""

    def __init__(self, api: Api, pod: Json) -> None:
        self._api = api
        self._pod = pod
        self._namespace: str = pod["metadata"]["namespace"]

    def secret(self, name: str) -> Values | None:
        """A secret's values; None where there is no such secret. Raises SourceError."""
        document = self._read("secrets", "secret", name)
        return None if document is None else {key: base64.b64decode(value) for key, value in (document.get("data") or {}).items()}

    def config_map(self, name: str) -> Values | None:
        """A config map's values; None where there is none. Raises SourceError."""
        document = self._read("configmaps", "configmap", name)
        if document is None:
            return None
        text = {key: value.encode() for key, value in (document.get("data") or {}).items()}
        return text | {key: base64.b64decode(value) for key, value in (document.get("binaryData") or {}).items()}

    def _read(self, collection: str, kind: str, name: str) -> Json | None:
        try:
            return self._api.get(f"/api/v1/namespaces/{self._namespace}/{collection}/{name}")
        except ApiError as problem:
            if problem.status == 404:
                return None
            raise SourceError(f"{kind} {self._namespace}/{name} cannot be read: {problem}") from problem

    def token(self, audience: str | None, lifetime_s: int) -> Token:
        """A new token of the pod's service account, valid as long as the pod exists. Raises SourceError."""
        metadata, account = self._pod["metadata"], self._pod["spec"].get("serviceAccountName", "default")
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        body: Json = {"spec": {"expirationSeconds": lifetime_s, "boundObjectRef": bound, "audiences": [audience] if audience else []}}
        try:
            answer = self._api.request("POST", f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{account}/token", body=body)
        except ApiError as problem:
            raise SourceError(f"failed to fetch token of service account {self._namespace}/{account}: {problem}") from problem
        return Token(answer["status"]["token"], float(answer["spec"].get("expirationSeconds") or lifetime_s))


def required(found: Values | None, kind: str, name: str, optional: bool) -> Values:
    """The values, or none where the source is optional. Raises SourceError for one that is needed."""
    if found is None and not optional:
        raise SourceError(f'{kind} "{name}" not found')
    return found or {}


Reader = Callable[[str], Values | None]
"""What `Sources.secret` and `Sources.config_map` are: a name to values, or None."""
