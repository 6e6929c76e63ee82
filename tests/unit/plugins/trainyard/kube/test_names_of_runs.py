"""Names that are derived from anything a person may call a run: valid, short, and never the same for two runs."""

from __future__ import annotations

import random
import re

from trainyard.contract import names

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
LETTERS = "abcXYZ019_.-: /äπ漢🙂"


def test_any_two_runs_have_two_valid_names() -> None:
    """kubeflow/trainer#1101, apache/airflow#14727: ids of 1–250 characters with dots, capitals, underscores and unicode."""
    chance = random.Random(1)
    seen: dict[str, tuple[str, str]] = {}
    for _ in range(3000):
        ids = tuple("".join(chance.choice(LETTERS) for _ in range(chance.randint(1, 250))) for _ in range(2))
        name = names.run_name(ids[0], f"train_{ids[0]}", ids[1])
        assert LABEL.fullmatch(name), name
        assert len(name) <= 31
        assert seen.setdefault(name, ids) == ids  # type: ignore[arg-type]


def test_parts_cannot_be_moved_between_the_ids() -> None:
    assert names.run_name("p", "ab", "c") != names.run_name("p", "a", "bc")
