"""A wheel is the same bytes everywhere, of the package alone, and is made without running any of it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from trainyard.api import wheels
from trainyard.cli import wheel
from trainyard.errors import ConfigError, NotFoundError


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    (folder / "layers").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('nothing of a package runs when it is published')\n")
    (folder / "model.py").write_text("from mine.layers import one\n\ndef build(config):\n    return one(config)\n")
    (folder / "layers" / "__init__.py").write_text("def one(config): ...\n")
    (folder / "words,and.txt").write_text("données")
    return folder


def test_the_same_folder_gives_the_same_bytes(package: Path, tmp_path: Path) -> None:
    first = wheel.build(package)
    other = tmp_path / "elsewhere" / "mine"
    for path in sorted(package.rglob("*"), reverse=True):  # made in another order, at another time, with other rights
        if path.is_file():
            copy = other / path.relative_to(package)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
            copy.chmod(0o600)
            os.utime(copy, (1, 1))
    assert wheel.build(other).data == first.data
    assert first.sha256 == hashlib.sha256(first.data).hexdigest()
    (other / "model.py").write_text("def build(config): ...\n")
    assert wheel.build(other).sha256 != first.sha256


def test_what_is_not_source_is_left_out(package: Path) -> None:
    before = wheel.build(package).data
    for name in ("__pycache__/model.cpython-311.pyc", ".git/config", ".hidden", "layers/__pycache__/x.pyc", "old.pyc"):
        (package / name).parent.mkdir(exist_ok=True)
        (package / name).write_bytes(b"x")
    assert wheel.build(package).data == before


def test_the_server_accepts_it_and_python_imports_it(package: Path, tmp_path: Path) -> None:
    (package / "__init__.py").write_text("")
    made = wheel.build(package)
    wheels.inspect(made.data, "mine", made.sha256)
    (tmp_path / "mine.whl").write_bytes(made.data)
    code = "from mine.model import build; import importlib.metadata as m; print(build({}), m.version('mine').startswith('0+'))"
    environment = {"PYTHONPATH": str(tmp_path / "mine.whl")}
    done = subprocess.run([sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "None True\n", done.stderr


def test_its_record_names_every_file(package: Path) -> None:
    import base64
    import csv

    with zipfile.ZipFile(BytesIO(wheel.build(package).data)) as archive:
        names = archive.namelist()
        record = next(name for name in names if name.endswith("RECORD"))
        rows = {row[0]: row[1:] for row in csv.reader(archive.read(record).decode().splitlines())}
        assert set(rows) == set(names)
        for name in set(names) - {record}:
            digest = base64.urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest()).rstrip(b"=").decode()
            assert rows[name] == [f"sha256={digest}", str(len(archive.read(name)))]


def test_every_syntax_error_is_named_with_its_line(package: Path) -> None:
    (package / "model.py").write_text("x = 1\n\ndef build(config:\n    pass\n")
    (package / "layers" / "__init__.py").write_text("def\n")
    with pytest.raises(ConfigError) as caught:
        wheel.build(package)
    assert [problem.split(": ")[0] for problem in caught.value.problems] == [f"{package}/model.py:3", f"{package}/layers/__init__.py:1"]


@pytest.mark.parametrize("content", [b"x = '\xff'\n", b"x = 1\x00\n"])
def test_bytes_that_are_no_source_are_named(package: Path, content: bytes) -> None:
    (package / "model.py").write_bytes(content)
    with pytest.raises(ConfigError, match=r"model\.py"):
        wheel.build(package)


def test_compiled_code_and_links_out_are_refused(package: Path, tmp_path: Path) -> None:
    (package / "fast.so").write_bytes(b"")
    (tmp_path / "secret").write_text("s")
    (package / "link.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(ConfigError) as caught:
        wheel.build(package)
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize("name", ["no-name", "1st", "class"])
def test_a_folder_that_python_could_not_import_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    with pytest.raises(ConfigError, match="Python name"):
        wheel.build(tmp_path / name)


def test_the_function_that_a_pipeline_names_must_be_there(package: Path) -> None:
    for good in ("mine.model:build", "mine.model:one", "mine.layers:one"):
        wheel.check_build(package, good)
    for bad, says in {
        "mine.model:biuld": "no `biuld`",
        "mine.nothing:build": "no module `mine.nothing`",
        "mine.layers.deep:one": "no module",
        "other.model:build": "no module",
    }.items():
        with pytest.raises(ConfigError, match=says):
            wheel.check_build(package, bad)


@pytest.mark.parametrize(
    "source",
    [
        "if True:\n    def build(c): ...\n",
        "build = lambda c: c\n",
        "from x import *\n",
        "try:\n    from a import build\nexcept ImportError:\n    build = None\n",
    ],
)
def test_a_function_may_come_about_in_any_way(package: Path, source: str) -> None:
    (package / "model.py").write_text(source)
    wheel.check_build(package, "mine.model:build")


def test_a_name_inside_a_function_is_not_the_modules(package: Path) -> None:
    (package / "model.py").write_text("if True:\n    def other():\n        build = 1\n\nclass A:\n    build = 2\n")
    with pytest.raises(ConfigError, match="no `build`"):
        wheel.check_build(package, "mine.model:build")


def test_a_package_is_found_near_and_told_apart(package: Path, tmp_path: Path) -> None:
    assert wheel.find("mine", [tmp_path]) == package
    with pytest.raises(NotFoundError, match="yours"):
        wheel.find("yours", [tmp_path])
    for hidden in (".venv", "node_modules", "build"):
        (tmp_path / hidden / "mine").mkdir(parents=True)
        (tmp_path / hidden / "mine" / "__init__.py").touch()
    assert wheel.find("mine", [tmp_path, package.parent]) == package
    (tmp_path / "src" / "mine").mkdir(parents=True)
    (tmp_path / "src" / "mine" / "__init__.py").touch()
    with pytest.raises(ConfigError, match="several folders"):
        wheel.find("mine", [tmp_path])
