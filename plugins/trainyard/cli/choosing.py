"""From the words a person types to the pipeline or run that is meant: one match, or an error that lists what there is."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.errors import ConfigError, NotFoundError

if TYPE_CHECKING:
    from trainyard.cli.client import Client
    from trainyard.cli.output import Output


@dataclass(frozen=True)
class Known:
    """What a person may see of the platform's pipelines."""

    pipelines: list[dict[str, Any]]
    """Those that Airflow has read."""
    problems: tuple[str, ...]
    """What is wrong with files of the person's tenants, as the server reads them: such a file makes no pipeline."""

    def named(self, text: str) -> list[dict[str, Any]]:
        """All that ``text`` may mean: a name, ``tenant/name``, or a DAG's id."""
        return [p for p in self.pipelines if text in (p["pipeline"], f"{p['tenant']}/{p['pipeline']}", p["dag_id"])]


def ask(client: Client, text: str, out: Output) -> Known:
    """The pipelines, after Airflow has read the one named ``text`` if it is about to."""
    return client.pipelines(text, waiting=lambda: out.remark(f"waiting until Airflow has read the pipeline `{text}`"))


def pipeline(text: str, known: Known) -> dict[str, Any]:
    """The pipeline named ``text``: ``mnist-cnn``, ``vision/mnist-cnn`` or its DAG's id.

    Raises:
        NotFoundError: none is named so.
        ConfigError: several tenants have one of that name, or its file is broken.
    """
    matches = known.named(text)
    if len(matches) == 1:
        return matches[0]
    if matches:
        full = ", ".join(f"{p['tenant']}/{p['pipeline']}" for p in matches)
        raise ConfigError(f"several pipelines are named `{text}`: {full}: name one of these")
    if broken := [problem for problem in known.problems if f"pipelines/{text.rpartition('/')[2]}.y" in problem.partition(" ")[0]]:
        raise ConfigError([f"pipeline `{text}` is not there while its file is broken:", *broken])
    near = hint(text, (p["pipeline"] for p in known.pipelines))
    raise NotFoundError("\n".join([f"no pipeline `{text}`; {near}", *known.problems]))


def version(text: str, chosen: dict[str, Any]) -> dict[str, Any]:
    """A version of the pipeline's dataset.

    Raises:
        NotFoundError: the dataset has no such version.
    """
    for item in chosen["versions"]:
        if item["version"] == text:
            return dict(item)
    raise NotFoundError(f"dataset `{chosen['dataset']}` has no version `{text}`; {hint(text, (v['version'] for v in chosen['versions']))}")


def newest(chosen: dict[str, Any]) -> str | None:
    """The version of the pipeline's dataset that was released last; None before the first release."""
    from datetime import UTC, datetime

    now = datetime.now(UTC)
    released = [(datetime.fromisoformat(item["released"]), item["version"]) for item in chosen["versions"]]
    return max((item for item in released if item[0] <= now), default=(now, None))[1]


def settings(pairs: Iterable[str], allowed: Iterable[str]) -> dict[str, Any]:
    """``--set key=value`` options as the run's form; values are JSON where they can be (``3``, ``0.1``, ``null``), text else.

    Raises:
        ConfigError: with every pair that cannot be used.
    """
    allowed, values, problems = set(allowed), {}, []
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            problems.append(f"--set {pair}: write it as key=value, e.g. --set epochs=3")
        elif key not in allowed:
            problems.append(f"--set {pair}: no parameter `{key}`; {hint(key, allowed)}")
        elif key in values:
            problems.append(f"--set {pair}: `{key}` is given twice")
        else:
            try:
                values[key] = json.loads(value)
            except ValueError:
                values[key] = value
    if problems:
        raise ConfigError(problems)
    return values


def hint(word: str, known: Iterable[str]) -> str:
    """The way out of a name that does not exist."""
    names = sorted(set(known))
    if near := difflib.get_close_matches(word, names, n=1):
        return f"did you mean `{near[0]}`?"
    return f"there are: {', '.join(names)}" if names else "there are none that you may see"
