from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from local.kubelet.api import Json
from local.kubelet.environment import ContainerContext, command_line, environment, expanded
from local.kubelet.images import Image
from local.kubelet.node import Capacity
from local.kubelet.paths import PathMap
from local.kubelet.sources import SourceError, Values
from tests.unit.local.kubelet.conftest import pod_document


class Sources:
    def __init__(self, secrets: dict[str, Values] | None = None, maps: dict[str, Values] | None = None) -> None:
        self._secrets, self._maps = secrets or {}, maps or {}

    def secret(self, name: str) -> Values | None:
        return self._secrets.get(name)

    def config_map(self, name: str) -> Values | None:
        return self._maps.get(name)


def context(mounts: dict[str, str] | None = None, **base: str) -> ContainerContext:
    paths = PathMap()
    for inside, here in (mounts or {}).items():
        paths.add(inside, Path(here))
    image = Image("app:*", ("serve", "--all"), ("/opt/app",), {"LANG": "C.UTF-8", "MODE": "image"})
    return ContainerContext(pod_document(), image, {"HOME": "/home/x", **base}, paths, Capacity(4, 1 << 30))


def build(sources: Sources | None = None, of: ContainerContext | None = None, **container: Any) -> dict[str, str]:
    return environment({"name": "main", **container}, of or context(), sources or Sources())


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(A)", "x1y1"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(B)", "$(B)"),
        ("$(A", "$(A"),
        ("$A", "$A"),
        ("$", "$"),
        ("$$", "$"),
        ("$()", "$()"),
        ("$(A)$$", "1$"),
    ],
)
def test_expansion_as_kubernetes_has_it(text: str, result: str) -> None:
    assert expanded(text, {"A": "1"}) == result


def test_nothing_of_this_process_gets_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAKS", "1")
    found = build(env=[{"name": "A", "value": "1"}])
    assert found == {"LANG": "C.UTF-8", "MODE": "image", "PATH": "/opt/app:/usr/local/bin:/usr/bin:/bin", "HOME": "/home/x", "A": "1"}


def test_the_pod_wins_over_env_from_and_that_over_the_image() -> None:
    sources = Sources(maps={"m": {"MODE": b"map", "LANG": b"map"}})
    found = build(
        sources, envFrom=[{"configMapRef": {"name": "m"}}], env=[{"name": "MODE", "value": "pod"}, {"name": "PATH", "value": "/bin"}]
    )
    assert (found["LANG"], found["MODE"], found["PATH"]) == ("map", "pod", "/bin")


def test_env_sees_those_before_it_and_env_from() -> None:
    sources = Sources(secrets={"s": {"K": b"v"}})
    env = [{"name": "A", "value": "$(K)-$(LATER)"}, {"name": "LATER", "value": "$(A)"}]
    found = build(sources, envFrom=[{"secretRef": {"name": "s"}}], env=env)
    assert (found["A"], found["LATER"]) == ("v-$(LATER)", "v-$(LATER)")


def test_a_prefix_and_names_that_cannot_be_variables() -> None:
    sources = Sources(secrets={"s": {"ok": b"1", "a=b": b"2"}})
    found = build(sources, envFrom=[{"prefix": "P_", "secretRef": {"name": "s"}}])
    assert found["P_ok"] == "1"
    assert not any("a=b" in name for name in found)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"secretKeyRef": {"name": "s", "key": "k"}}, 'secret "s" not found'),
        ({"secretKeyRef": {"name": "t", "key": "k"}}, "couldn't find key k in Secret ns/t"),
        ({"configMapKeyRef": {"name": "s", "key": "k"}}, 'configmap "s" not found'),
        ({"configMapKeyRef": {"name": "m", "key": "k"}}, "couldn't find key k in ConfigMap ns/m"),
        ({"fieldRef": {"fieldPath": "spec.nope"}}, "spec.nope"),
        ({"fileKeyRef": {"path": "x"}}, "none of the sources"),
    ],
)
def test_what_is_missing_is_named(item: Json, message: str) -> None:
    sources = Sources(secrets={"t": {"o": b""}}, maps={"m": {"o": b""}})
    with pytest.raises(SourceError) as problem:
        build(sources, env=[{"name": "A", "valueFrom": item}])
    assert message in str(problem.value)


@pytest.mark.parametrize("name", ["absent", "present"])
def test_an_optional_source_leaves_the_variable_unset(name: str) -> None:
    sources = Sources(secrets={"present": {"other": b""}})
    reference = {"name": name, "key": "k", "optional": True}
    found = build(
        sources,
        env=[{"name": "A", "valueFrom": {"secretKeyRef": reference}}],
        envFrom=[{"secretRef": {"name": "absent", "optional": True}}],
    )
    assert "A" not in found


def test_a_value_from_a_source_is_not_expanded() -> None:
    found = build(Sources(secrets={"s": {"k": b"$(HOME)"}}), env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}])
    assert found["A"] == "$(HOME)"


def test_bytes_that_are_no_utf8_come_through() -> None:
    found = build(Sources(secrets={"s": {"k": b"\xff\xfe"}}), env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}])
    assert found["A"].encode("utf-8", "surrogateescape") == b"\xff\xfe"


def test_a_nul_byte_cannot_be_in_a_variable() -> None:
    with pytest.raises(SourceError, match="NUL"):
        build(Sources(secrets={"s": {"k": b"a\0b"}}), env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}])


def test_paths_of_mounts_are_rewritten_where_the_pod_gives_them_only() -> None:
    of = context({"/home": "/v/home", "/data": "/v/data"})
    found = build(of=of, env=[{"name": "A", "value": "/data/x"}, {"name": "B", "value": "$(A)"}, {"name": "C", "value": "see /data"}])
    assert (found["A"], found["B"], found["C"]) == ("/v/data/x", "/v/data/x", "see /data")
    assert found["HOME"] == "/home/x", "the kubelet's own value is a real path already"


@pytest.mark.parametrize(
    ("container", "command"),
    [
        ({}, ["serve", "--all"]),
        ({"args": ["a"]}, ["serve", "--all", "a"]),
        ({"command": ["run"]}, ["run"]),
        ({"command": ["run", "$(X)"], "args": ["$(NO)", "$$x"]}, ["run", "1", "$(NO)", "$x"]),
        ({"command": ["cat", "/data/f"], "args": ["--out=/data/g"]}, ["cat", "/v/data/f", "--out=/v/data/g"]),
    ],
)
def test_command_lines(container: Json, command: list[str]) -> None:
    assert command_line(container, context({"/data": "/v/data"}), {"X": "1"}) == command
