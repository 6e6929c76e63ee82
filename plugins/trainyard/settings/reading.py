"""One YAML file into one frozen model, or into problems of one line each: file, line, key, value, and the way out.

Stricter than YAML itself: a key twice in a mapping, a key that is no text (``1.0:``, ``on:``), and several documents in one file
are refused. Nothing here raises for bad content: problems are returned, so that one file does not hide the others'.
"""

from __future__ import annotations

import datetime as dt
import difflib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

Location = tuple[str | int, ...]
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LONGEST_VALUE = 60
_NOT_FINITE = "must be a finite number: JSON, in which a run gets it, has none such"
_EXPONENT = re.compile(r"([+-]?\d+)(?:\.(\d*))?[eE]([+-]?)(\d+)\Z", re.ASCII)
_LARGEST_WHOLE = 2**53
"""Above it a float is no exact whole number."""
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Problem:
    """One thing wrong in one file."""

    file: str
    """As a person knows it: ``config/pipelines/mnist-cnn.yaml``."""
    line: int | None
    key: str
    """Dotted path; empty for the file as a whole."""
    value: str | None
    """The offending value as written, shortened; None where there is none."""
    message: str
    """What is wrong, and the way out."""

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        key = f" {self.key}" + ("" if self.value is None else f" = {self.value}") + ":" if self.key else ""
        return f"{where}:{key} {self.message}"


@dataclass(frozen=True)
class Document:
    """A file's content, and where each key of it stands."""

    file: str
    data: dict[str, Any]
    node: yaml.MappingNode

    def line(self, location: Location) -> int:
        """The line (from 1) of the deepest part of ``location`` that the file has."""
        node: yaml.Node = self.node
        line = node.start_mark.line
        for part in location:
            if isinstance(node, yaml.MappingNode):
                found = next(((k, v) for k, v in node.value if k.value == part), None)
                if found is None:
                    break
                line, node = found[0].start_mark.line, found[1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line = node.start_mark.line
            else:
                break
        return int(line) + 1

    def problem(self, location: Location, message: str, *, value: Any = None, show_value: bool = True) -> Problem:
        """A problem at ``location``, with the value that the file has there unless another is given."""
        shown = value if value is not None else self._at(location)
        return Problem(self.file, self.line(location), dotted(location), _shorten(shown) if show_value else None, message)

    def _at(self, location: Location) -> Any:
        here: Any = self.data
        for part in location:
            try:
                here = here[part]
            except (KeyError, IndexError, TypeError):
                return None
        return here


def dotted(location: Location) -> str:
    """``("training", "epochs")`` → ``training.epochs``; keys that hold dots themselves are quoted."""
    return ".".join(f'"{part}"' if isinstance(part, str) and "." in part else str(part) for part in location)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The way out for a name that does not exist: the nearest one, else all there are."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if near:
        return f"did you mean '{near[0]}'?"
    return f"there are: {', '.join(names)}" if names else "there are none"


def read_document(path: Path, file: str) -> tuple[Document | None, list[Problem]]:
    """Parse ``path``; no document if it cannot be taken as a mapping at all."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return None, [Problem(file, None, "", None, f"cannot be read: {error}")]
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None, [Problem(file, None, "", None, "is empty: see the samples in docs/guides/configuration.md")]
        if not isinstance(node, yaml.MappingNode):
            return None, [Problem(file, node.start_mark.line + 1, "", None, "must be a mapping (key: value)")]
        if (loop := _loop(node, (), ())) is not None:
            return None, [Problem(file, loop[1], dotted(loop[0]), None, "is an alias of what it lies in, without end: write it out")]
        problems = list(_bad_keys(node, (), file))
        data = loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(part for part in (error.context, error.problem) if part)
        return None, [Problem(file, mark.line + 1 if mark else None, "", None, f"is not valid YAML: {what}")]
    except RecursionError:
        return None, [Problem(file, None, "", None, "is not valid YAML: nested too deeply")]
    except (yaml.YAMLError, ValueError, TypeError) as error:
        # ValueError: a date such as 2026-13-01; TypeError: a mapping used as a key.
        return None, [Problem(file, None, "", None, f"is not valid YAML: {' '.join(str(error).split())}")]
    finally:
        loader.dispose()
    return (Document(file, data, node), []) if not problems else (None, problems)


def _loop(node: yaml.Node, location: Location, above: tuple[yaml.Node, ...]) -> tuple[Location, int] | None:
    """Where an alias (``&a [*a]``) names a node that it lies in, and the line of that node: the alias' own is not kept."""
    if node in above:
        return location, node.start_mark.line + 1
    below: Iterable[tuple[str | int, yaml.Node]] = ()
    if isinstance(node, yaml.SequenceNode):
        below = enumerate(node.value)
    elif isinstance(node, yaml.MappingNode):
        below = [(str(key.value), value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
    found = (_loop(child, (*location, part), (*above, node)) for part, child in below)
    return next((loop for loop in found if loop is not None), None)


def _bad_keys(node: yaml.Node, location: Location, file: str) -> Iterable[Problem]:
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _bad_keys(item, (*location, index), file)
    if not isinstance(node, yaml.MappingNode):
        return
    seen: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        here = (*location, str(key.value)) if isinstance(key, yaml.ScalarNode) else location
        if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
            yield Problem(file, line, dotted(here), None, "YAML reads this key as something else than text: put it in quotes")
            continue
        if key.value in seen:
            yield Problem(file, line, dotted(here), None, f"is given twice (first in line {seen[key.value]}): remove one")
        seen[key.value] = line
        yield from _bad_keys(value, here, file)


def validate(
    model: type[M], document: Document, name: str, complete: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict
) -> tuple[M | None, list[Problem]]:
    """The document as ``model``, whose ``name`` is the file's stem; ``complete`` adds what another file gives it."""
    if "name" in document.data:
        return None, [document.problem(("name",), "the name is the file's own: remove this key")]
    # Fields of a type are checked with it; in free-form mappings (a model's config) nobody else would look.
    infinite = {location: document.problem(location, _NOT_FINITE) for location in _not_finite(document.data, ())}
    try:
        # Through JSON, since pydantic's strict mode takes texts as times and lists as tuples there, and nothing else.
        value = model.model_validate_json(json.dumps({**complete(document.data), "name": name}, default=_jsonable))
    except ValidationError as error:
        details = error.errors(include_url=False)
        # A list that holds nothing good is empty to pydantic: what is wrong in it has been said.
        inside = {detail["loc"][:end] for detail in details for end in range(len(detail["loc"]))}
        details = [detail for detail in details if not (detail["type"] == "too_short" and detail["loc"] in inside)]
        for detail in details:
            infinite.pop(detail["loc"], None)
        return None, [*(_explain(model, document, detail) for detail in details), *infinite.values()]
    except (TypeError, ValueError) as error:
        return None, [Problem(document.file, None, "", None, f"holds a value that JSON has no form for: {error}")]
    return (value, []) if not infinite else (None, list(infinite.values()))


def _not_finite(value: Any, location: Location) -> Iterable[Location]:
    """Where the numbers are that JSON, and so the run spec, has no form for."""
    if isinstance(value, dict | list):
        for part, below in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _not_finite(below, (*location, part))
    elif isinstance(value, float) and not math.isfinite(value):
        yield location


def _jsonable(value: Any) -> Any:
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__}: {value!r}")


def _explain(model: type[BaseModel], document: Document, detail: ErrorDetails) -> Problem:
    """Pydantic's error in our words: what is expected, and what to write."""
    location: Location = tuple(part for part in detail["loc"] if part != "[key]")
    kind, context = detail["type"], detail.get("ctx", {})
    if location == ("name",):
        return Problem(document.file, None, "", None, f"the file's name '{detail['input']}' cannot be used: {_pattern_rule(context)}")
    match kind:
        case "extra_forbidden":
            owner = _model_at(model, location[:-1])
            known = [key for key in owner.model_fields if key != "name"] if owner else []
            return document.problem(location, f"unknown key; {did_you_mean(str(location[-1]), known)}")
        case "missing":
            owner = _model_at(model, location[:-1])
            field = owner.model_fields.get(str(location[-1])) if owner else None
            meaning = f" ({field.description.splitlines()[0].rstrip('.')})" if field and field.description else ""
            return document.problem(location, f"is missing: add it{meaning}", show_value=False)
        case "value_error":
            return document.problem(location, str(context.get("error", detail["msg"])), show_value=_is_leaf(document, location))
        case "string_pattern_mismatch":
            return document.problem(location, _pattern_rule(context))
        case "literal_error":
            return document.problem(location, f"must be {context['expected']}")
        case "timezone_aware":
            return document.problem(location, "has no time zone: write it as 2026-01-01T00:00:00Z")
        case "datetime_type" | "datetime_parsing" | "datetime_from_date_parsing":
            return document.problem(location, "is no time: write it as 2026-01-01T00:00:00Z")
        case "int_type" | "int_from_float":
            return document.problem(location, f"must be a whole number, without quotes{_number_hint(document._at(location), whole=True)}")
        case "float_type":
            return document.problem(location, f"must be a number, without quotes{_number_hint(document._at(location), whole=False)}")
        case "string_type":
            return document.problem(location, "must be text: put it in quotes")
        case "bool_type":
            return document.problem(location, "must be true or false")
        case "dict_type" | "model_type" | "model_attributes_type":
            return document.problem(location, "must be a mapping (key: value)")
        case "tuple_type":
            return document.problem(location, "must be a list ([…], or lines that begin with -)")
        case "greater_than_equal":
            return document.problem(location, f"must be {context['ge']} or more")
        case "less_than_equal":
            return document.problem(location, f"must be {context['le']} or less")
        case "greater_than":
            return document.problem(location, f"must be more than {context['gt']}")
        case "too_short" | "string_too_short":
            return document.problem(location, "must not be empty")
        case _:
            return document.problem(location, detail["msg"][:1].lower() + detail["msg"][1:])


def _number_hint(value: Any, *, whole: bool) -> str:
    """How to write a number that YAML took for text: it wants a dot before an exponent and a sign in it (``1e-3`` → ``1.0e-3``)."""
    match = _EXPONENT.match(value) if isinstance(value, str) else None
    if match is None or not math.isfinite(number := float(match[0])):
        return ""
    dotted_form = f"{match[1]}.{match[2] or '0'}e{match[3] or '+'}{match[4]}"
    plain = repr(number)
    if whole:
        forms = [str(int(number))] if number.is_integer() and abs(number) < _LARGEST_WHOLE else []
    else:
        forms = [dotted_form] if "e" in plain else [plain, dotted_form]
    return f"; write {' or '.join(forms)} (YAML takes {value} for text)" if forms else ""


def _is_leaf(document: Document, location: Location) -> bool:
    return bool(location) and not isinstance(document._at(location), dict | list)


def _pattern_rule(context: Mapping[str, Any]) -> str:
    """A regular expression of ours in words."""
    from trainyard.contract.names import NAME_PATTERN, TENANT_PATTERN
    from trainyard.settings import base, clusters, site_pods, tenants

    pattern = str(context.get("pattern", ""))
    member = get_args(tenants.MemberName)[1].pattern
    rules = {
        TENANT_PATTERN: "use 3–30 lower-case letters, digits and dashes, starting with a letter, ending without a dash",
        NAME_PATTERN: "use 1–40 lower-case letters, digits and dashes, starting with a letter, ending without a dash",
        base.MODULE_ATTRIBUTE_PATTERN: "write module:attribute, as package.module:function",
        base.PACKAGE_PATTERN: "write a Python package's name: lower-case letters, digits and underscores",
        base.VERSION_PATTERN: 'write MAJOR.MINOR.PATCH in quotes, as "1.0.0"',
        member: "use 2–40 lower-case letters, digits, dots, dashes and underscores, starting with a letter",
        get_args(clusters.Url)[1].pattern: "write a URL of scheme, host and port, as http://127.0.0.1:8333",
        get_args(clusters.BucketPrefix)[1].pattern: "use 3–20 lower-case letters, digits and dashes",
        get_args(base.Image)[1].pattern: "write an image reference, as registry/trainyard/trainer:1.2.0",
        get_args(tenants.ImagePattern)[1].pattern: "write an image reference, with * in place of any tag, as registry/vision/trainer:*",
        get_args(clusters.GpuResource)[1].pattern: "write a resource of Kubernetes with its domain, as nvidia.com/gpu",
        get_args(site_pods.ObjectName)[1].pattern: "write the name of an object in Kubernetes: lower-case letters, digits, dots and dashes",
    }
    return rules.get(pattern, f"does not match {pattern}")


def _model_at(model: type[BaseModel], location: Location) -> type[BaseModel] | None:
    """The model that the mapping at ``location`` is read into."""
    here: Any = model
    for part in location:
        if _is_model(here):
            field = here.model_fields.get(str(part))
            here = field.annotation if field else None
        elif get_origin(here) is dict:
            here = get_args(here)[1]
        elif get_origin(here) is tuple:
            here = get_args(here)[0]
        else:
            return None
        if not _is_model(here) and get_origin(here) not in (dict, tuple):  # `Model | None`
            here = next((option for option in get_args(here) if _is_model(option)), None)
    return here if _is_model(here) else None


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _shorten(value: Any) -> str | None:
    if value is None or isinstance(value, dict | list):
        return None
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"
