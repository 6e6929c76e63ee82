from __future__ import annotations

import base64

import pytest

from local.kubelet.api import ApiError
from local.kubelet.sources import SourceError, Sources, required
from tests.unit.local.kubelet.conftest import FakeApi, pod_document


def test_secrets_and_config_maps_are_bytes(api: FakeApi) -> None:
    encoded = base64.b64encode(b"\x00\xff").decode()
    api.answers["GET", "/api/v1/namespaces/ns/secrets/s"] = {"data": {"k": encoded}}
    api.answers["GET", "/api/v1/namespaces/ns/configmaps/m"] = {"data": {"t": "ü"}, "binaryData": {"b": encoded}}
    sources = Sources(api, pod_document())  # type: ignore[arg-type]
    assert sources.secret("s") == {"k": b"\x00\xff"}
    assert sources.config_map("m") == {"t": "ü".encode(), "b": b"\x00\xff"}
    assert sources.secret("none") is None


def test_a_refusal_is_not_the_same_as_absence(api: FakeApi) -> None:
    api.answers["GET", "/api/v1/namespaces/ns/secrets/s"] = ApiError(403, "no relationship found between node and this object")
    with pytest.raises(SourceError, match="no relationship"):
        Sources(api, pod_document()).secret("s")  # type: ignore[arg-type]


def test_a_token_is_bound_to_the_pod(api: FakeApi) -> None:
    path = "/api/v1/namespaces/ns/serviceaccounts/default/token"
    api.answers["POST", path] = {"status": {"token": "t"}, "spec": {"expirationSeconds": 600}}
    token = Sources(api, pod_document()).token("aud", 3600)  # type: ignore[arg-type]
    assert (token.value, token.lifetime_s) == ("t", 600.0)
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u-1"}
    assert api.asked == [("POST", path, {"spec": {"expirationSeconds": 3600, "boundObjectRef": bound, "audiences": ["aud"]}})]


def test_required() -> None:
    assert required(None, "secret", "s", optional=True) == {}
    with pytest.raises(SourceError, match=r'^secret "s" not found$'):
        required(None, "secret", "s", optional=False)
