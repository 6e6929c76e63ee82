"""The user's package: by digest, unpacked, and its mistakes told with file and line."""

from __future__ import annotations

import hashlib
import io
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainer import code
from trainer.errors import DataError, UserError
from trainer.spec import CodeSpec
from trainer.storage.objects import Bucket

Install = Callable[..., Path]


def wheel(files: dict[str, str]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return data.getvalue()


@pytest.fixture
def install(bucket: Bucket, tmp_path: Path) -> Iterator[Install]:
    """Publishes files as a package and installs it."""
    path, modules = list(sys.path), set(sys.modules)

    def do(files: dict[str, str] | bytes, sha256: str | None = None) -> Path:
        data = files if isinstance(files, bytes) else wheel(files)
        digest = sha256 or hashlib.sha256(data).hexdigest()
        key = f"code/userpkg/{digest}.whl"
        bucket.put(key, data)
        folder = code.install(bucket, CodeSpec("userpkg", digest, key), tmp_path / "work")
        assert folder is not None
        return folder

    yield do
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def test_a_published_package_can_be_imported(install: Install) -> None:
    folder = install(
        {"userpkg/__init__.py": "", "userpkg/model.py": "def build(config): return config['n']\n", "userpkg/words.txt": "hello"}
    )
    assert code.resolve("userpkg.model:build", "model.build")({"n": 3}) == 3
    # Unpacked, so that a builder may read a file beside its module.
    assert (folder / "userpkg" / "words.txt").read_text() == "hello"


def test_the_zoo_needs_no_package(bucket: Bucket) -> None:
    assert code.install(bucket, None) is None


def test_installing_again_needs_no_s3(install: Install, bucket: Bucket) -> None:
    folder = install({"userpkg/__init__.py": ""})
    spec = CodeSpec("userpkg", folder.name, f"code/userpkg/{folder.name}.whl")
    bucket.delete(spec.key)
    assert code.install(bucket, spec, folder.parents[1]) == folder
    assert sys.path.count(str(folder)) == 1


def test_other_bytes_than_published_are_refused(install: Install) -> None:
    with pytest.raises(DataError, match="is not what was recorded"):
        install({"userpkg/__init__.py": ""}, sha256="0" * 64)


def test_a_package_that_is_gone_is_said(bucket: Bucket, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"package userpkg: .* is not there any more; publish it again"):
        code.install(bucket, CodeSpec("userpkg", "0" * 64, "code/userpkg/0.whl"), tmp_path)


def test_what_is_no_wheel_is_said(install: Install) -> None:
    with pytest.raises(UserError, match=r"package userpkg: .*is no wheel"):
        install(b"not a zip file")


@pytest.mark.parametrize("name", ["../evil.py", "userpkg/../../evil.py", "/tmp/evil.py"])
def test_entries_outside_the_package_are_refused(install: Install, tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="lies outside the package"):
        install({"userpkg/__init__.py": "", name: "bad"})
    assert not list(tmp_path.rglob("evil.py"))
    assert not [p for p in (tmp_path / "work" / "code").iterdir() if p.suffix != ".whl"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import os\ndef build(config)\n    return 1\n", "userpkg/model.py:2: SyntaxError: expected ':': def build(config)"),
        ("def f():\n\treturn 1\n        return 2\n", "userpkg/model.py:3: TabError: inconsistent use of tabs and spaces in indentation"),
        ("import nosuchlibrary\n", "userpkg/model.py:1: ModuleNotFoundError: No module named 'nosuchlibrary'"),
        ("from userpkg.other import thing\n", "userpkg/other.py:2: ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit('no')\n", "userpkg/model.py:2: SystemExit: no"),
        ("raise ValueError()\n", "userpkg/model.py:1: ValueError"),
    ],
)
def test_what_fails_at_import_is_told_with_file_and_line(install: Install, source: str, said: str) -> None:
    install({"userpkg/__init__.py": "", "userpkg/model.py": source, "userpkg/other.py": "# second line is bad\n1 / 0\n"})
    with pytest.raises(UserError) as caught:
        code.resolve("userpkg.model:build", "model.build")
    assert str(caught.value).startswith("model.build: importing 'userpkg.model' failed: ")
    assert said in str(caught.value)


def test_the_innermost_user_frame_is_blamed(install: Install) -> None:
    install({"userpkg/__init__.py": "", "userpkg/model.py": "import json\ndef build(config):\n    return json.loads(config)\n"})
    build = code.resolve("userpkg.model:build", "model.build")
    with pytest.raises(ValueError, match="Expecting") as caught:
        build("{")
    assert code.blame(caught.value).startswith("userpkg/model.py:3: JSONDecodeError: Expecting property name")


def test_the_platforms_own_frames_are_never_blamed_on_the_user() -> None:
    with pytest.raises(ValueError, match="x") as caught:
        raise ValueError("x")
    assert code.blame(caught.value) == "ValueError: x"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("userpkg.model", "'userpkg.model' is not of the form module:attribute"),
        ("nopkg.model:build", "there is no module 'nopkg' (in 'nopkg.model:build'); is it in the package that was published?"),
        ("userpkg.modle:build", "there is no module 'userpkg.modle' (in 'userpkg.modle:build'); userpkg has: model, other"),
        ("userpkg.model:biuld", "module 'userpkg.model' has no 'biuld'; it defines: build, helper"),
    ],
)
def test_names_that_do_not_exist(install: Install, name: str, said: str) -> None:
    source = "import json\nfrom pathlib import Path\ndef build(config): ...\ndef helper(): ...\n"
    install({"userpkg/__init__.py": "", "userpkg/model.py": source, "userpkg/other.py": ""})
    with pytest.raises(UserError) as caught:
        code.resolve(name, "model.build")
    assert str(caught.value) == f"model.build: {said}"
