from __future__ import annotations

import random

import pytest

from trainer.errors import UserError
from trainer.steps.plan import balance


def test_equal_files_are_dealt_evenly() -> None:
    assert balance([1000] * 4, 2) == [[0, 2], [1, 3]]
    assert balance([500, 500], 1) == [[0, 1]]


def test_unequal_files_are_balanced_by_examples() -> None:
    assert balance([100, 900, 100, 100, 600], 2) == [[1], [0, 2, 3, 4]]


def test_every_file_has_one_reader_and_every_worker_something_to_read() -> None:
    rng = random.Random(1)
    for _ in range(200):
        examples = [rng.randint(1, 1000) for _ in range(rng.randint(1, 30))]
        workers = rng.randint(1, len(examples))
        shares = balance(examples, workers)
        assert sorted(i for share in shares for i in share) == list(range(len(examples)))
        assert all(shares)
        loads = [sum(examples[i] for i in share) for share in shares]
        # Largest first: no two workers are further apart than the largest file.
        assert max(loads) - min(loads) <= max(examples)


def test_a_worker_too_many_is_said_with_the_way_out() -> None:
    with pytest.raises(UserError, match=r"gang.workers is 3, and the train split has 2 shard files: .* use at most 2 workers, or raise"):
        balance([1, 1], 3)
