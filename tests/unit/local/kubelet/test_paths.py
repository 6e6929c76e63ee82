from __future__ import annotations

from pathlib import Path

import pytest

from local.kubelet.paths import PathMap


@pytest.fixture
def paths() -> PathMap:
    paths = PathMap()
    paths.add("/data", Path("/v/data"))
    paths.add("/data/deep/", Path("/v/deep"))
    return paths


@pytest.mark.parametrize(
    ("value", "here"),
    [
        ("/data", "/v/data"),
        ("/data/", "/v/data/"),
        ("/data/x/y", "/v/data/x/y"),
        ("/data/deep", "/v/deep"),
        ("/data/deep/z", "/v/deep/z"),
        ("--out=/data/x", "--out=/v/data/x"),
        ("-o=/data", "-o=/v/data"),
        ("/database", "/database"),
        ("data/x", "data/x"),
        ("cat /data/x", "cat /data/x"),
        ("s3://data/x", "s3://data/x"),
        ("A=/data/x", "A=/data/x"),
        ("", ""),
    ],
)
def test_what_is_a_path_in_a_mount(paths: PathMap, value: str, here: str) -> None:
    assert paths.rewritten(value) == here


def test_no_mount_no_change() -> None:
    assert PathMap().rewritten("/data") == "/data"
    assert PathMap().find("/data") is None


def test_a_mount_of_the_root() -> None:
    paths = PathMap()
    paths.add("/", Path("/v/all"))
    assert paths.find("/") == Path("/v/all")
