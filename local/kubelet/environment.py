"""A container's environment and command line: only what its pod declares, as a kubelet works them out.

Order: the image's env, what every container has (PATH, HOME, HOSTNAME, where the API server is), envFrom, env. `$(NAME)` is expanded in
values, command and arguments from what was set before; `$$` is a dollar; an unknown name stays as it is written.
Source: kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables.
"""

import re
from dataclasses import dataclass
from typing import Protocol

from local.kubelet import downward
from local.kubelet.api import Json
from local.kubelet.images import Image
from local.kubelet.node import Capacity
from local.kubelet.paths import PathMap
from local.kubelet.sources import SourceError, Values, required

_REFERENCE = re.compile(r"\$(?:\$|\(([^()]*)\))")
_VARIABLE = re.compile(r"^[^=\0]+$")


class ValueSources(Protocol):
    """The part of sources.Sources that is used here."""

    def secret(self, name: str) -> Values | None:
        """A secret's values."""

    def config_map(self, name: str) -> Values | None:
        """A config map's values."""


@dataclass(frozen=True)
class ContainerContext:
    """What a container's environment depends on, beside its own spec."""

    pod: Json
    image: Image
    base: dict[str, str]
    """HOME, HOSTNAME, KUBERNETES_SERVICE_HOST and the like; see pod.py."""
    paths: PathMap
    capacity: Capacity


def expanded(text: str, known: dict[str, str]) -> str:
    """`text` with `$(NAME)` replaced where NAME is known."""

    def one(found: re.Match[str]) -> str:
        name = found[1]
        if name is None:
            return "$"
        return known.get(name, found[0])

    return _REFERENCE.sub(one, text)


def environment(container: Json, context: ContainerContext, sources: ValueSources) -> dict[str, str]:
    """The container's whole environment. Raises SourceError for what is missing."""
    found = {**context.image.env, "PATH": context.image.search_path, **context.base}
    for item in container.get("envFrom") or []:
        found |= {name: context.paths.rewritten(value) for name, value in _from(item, sources).items()}
    # As with a kubelet, an entry sees those before it.
    for item in container.get("env") or []:
        value = _value(item, container["name"], context, sources, found)
        if value is not None:
            found[item["name"]] = context.paths.rewritten(value)
    return found


def _from(item: Json, sources: ValueSources) -> dict[str, str]:
    for key, kind, read in (("secretRef", "secret", sources.secret), ("configMapRef", "configmap", sources.config_map)):
        if reference := item.get(key):
            values = required(read(reference["name"]), kind, reference["name"], bool(reference.get("optional")))
            prefix = item.get("prefix", "")
            return {prefix + name: _text(value, kind, name) for name, value in sorted(values.items()) if _VARIABLE.match(prefix + name)}
    return {}


def _value(item: Json, container: str, context: ContainerContext, sources: ValueSources, known: dict[str, str]) -> str | None:
    """The value of one env entry; None where an optional source has none, and then the variable is not set."""
    source = item.get("valueFrom")
    if not source:
        return expanded(item.get("value") or "", known)
    try:
        if reference := source.get("fieldRef"):
            return downward.field(context.pod, reference["fieldPath"])
        if reference := source.get("resourceFieldRef"):
            return downward.resource(context.pod, container, reference, context.capacity)
    except downward.FieldError as problem:
        raise SourceError(str(problem)) from problem
    for key, kind, read in (("secretKeyRef", "secret", sources.secret), ("configMapKeyRef", "configmap", sources.config_map)):
        if reference := source.get(key):
            optional = bool(reference.get("optional"))
            values = required(read(reference["name"]), kind, reference["name"], optional)
            if reference["key"] in values:
                return _text(values[reference["key"]], kind, reference["key"])
            if optional:
                return None
            names = {"secret": "Secret", "configmap": "ConfigMap"}
            raise SourceError(
                f"couldn't find key {reference['key']} in {names[kind]} {context.pod['metadata']['namespace']}/{reference['name']}"
            )
    raise SourceError(f"env {item['name']}: none of the sources the embedded kubelet knows is given ({', '.join(source)})")


def _text(value: bytes, kind: str, key: str) -> str:
    if b"\0" in value:
        raise SourceError(f"{kind} key {key!r} holds a NUL byte, which no environment variable can")
    return value.decode("utf-8", "surrogateescape")


def command_line(container: Json, context: ContainerContext, env: dict[str, str]) -> list[str]:
    """The command to run: the pod's, or the image's entry point, and the pod's args. Empty where neither gives one."""
    command = [expanded(part, env) for part in container.get("command") or []] or list(context.image.entrypoint)
    return [context.paths.rewritten(part) for part in [*command, *(expanded(part, env) for part in container.get("args") or [])]]
