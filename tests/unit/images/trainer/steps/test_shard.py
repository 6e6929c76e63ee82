from __future__ import annotations

import itertools

from trainer.steps.shard import Source, window

SOURCES = [Source("a", 0, 10), Source("b", 5, 4), Source("c", 0, 6)]


def test_a_window_within_one_file() -> None:
    assert window(SOURCES, 2, 3) == [Source("a", 2, 3)]


def test_a_window_over_files_keeps_what_they_skip_already() -> None:
    assert window(SOURCES, 8, 9) == [Source("a", 8, 2), Source("b", 5, 4), Source("c", 0, 3)]
    assert window(SOURCES, 12, 2) == [Source("b", 7, 2)]


def test_windows_side_by_side_are_everything() -> None:
    for shards in (1, 3, 7, 20):
        edges = [20 * j // shards for j in range(shards + 1)]
        parts = [part for a, b in itertools.pairwise(edges) for part in window(SOURCES, a, b - a)]
        taken = [(part.name, part.skip + i) for part in parts for i in range(part.take)]
        assert taken == [(source.name, source.skip + i) for source in SOURCES for i in range(source.take)]
