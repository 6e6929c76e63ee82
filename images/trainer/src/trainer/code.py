"""The user's own code: fetched by digest, checked, unpacked and imported; its mistakes told with file and line.

A published package is a pure-Python wheel that the platform packed without running anything of it. Here it is unpacked into the working
directory (so that builders may read data files beside their modules) and put first on ``sys.path``. Dotted names, ours or theirs, are
``module:attribute``.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import sys
import traceback
import zipfile
from pathlib import Path
from typing import Any, Final

from trainer.errors import DataError, UserError
from trainer.spec import CodeSpec
from trainer.storage.objects import Bucket, File

FOLDER: Final = "code"
MOST_BYTES: Final = 512 * 1024 * 1024
"""Unpacked size above which a package is refused: code is small, data belongs into a dataset."""


def install(bucket: Bucket, code: CodeSpec | None, work: Path = Path()) -> Path | None:
    """Makes the run's published package importable and gives its folder; None when the run uses the zoo.

    Raises:
        UserError: the package is not a wheel that can be used.
        DataError: its bytes are not those of the digest.
    """
    if code is None:
        return None
    folder = (work / FOLDER / code.sha256).resolve()
    if not folder.is_dir():
        head = bucket.head(code.key)
        if head is None:
            raise DataError(f"package {code.package}: {bucket.url(code.key)} is not there any more; publish it again (trainyard publish)")
        wheel = bucket.download(File(key=code.key, size=head.size, sha256=code.sha256), work / FOLDER / f"{code.sha256}.whl")
        unpack(wheel, folder, code.package)
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
        importlib.invalidate_caches()
    return folder


def unpack(wheel: Path, folder: Path, package: str) -> None:
    """Unpacks a wheel so that ``folder`` appears only when it is whole.

    Raises:
        UserError: not a zip file, too large, or an entry that would lie outside the folder.
    """
    partial = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        with zipfile.ZipFile(wheel) as archive:
            entries = archive.infolist()
            if (total := sum(entry.file_size for entry in entries)) > MOST_BYTES:
                raise UserError(f"package {package}: {total} bytes unpacked, at most {MOST_BYTES} are allowed; put data into a dataset")
            for entry in entries:
                if not (partial / entry.filename).resolve().is_relative_to(partial.resolve()):
                    raise UserError(f"package {package}: entry {entry.filename!r} lies outside the package")
            archive.extractall(partial)
        partial.rename(folder)
    except (zipfile.BadZipFile, EOFError) as error:
        raise UserError(f"package {package}: {wheel.name} is no wheel: {error}; publish it again (trainyard publish)") from error
    except OSError:
        # Another process of this pod may have been first: the folder's name is the digest, so its content is the same.
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def resolve(name: str, key: str) -> Any:
    """The object behind ``module:attribute``; ``key`` is where the run spec names it, e.g. ``model.build``.

    Raises:
        UserError: malformed, not there, or its module fails to import (with file and line).
    """
    module_name, separator, attribute = name.partition(":")
    if not (separator and module_name and attribute):
        raise UserError(f"{key}: {name!r} is not of the form module:attribute")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise UserError(f"{key}: there is no module {error.name!r} (in {name!r}){_hint(error.name)}") from error
        raise UserError(f"{key}: importing {module_name!r} failed: {blame(error)}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: an import that ends the process is a mistake like any other
        raise UserError(f"{key}: importing {module_name!r} failed: {blame(error)}") from error
    try:
        return getattr(module, attribute)
    except AttributeError as error:
        there = sorted(n for n, v in vars(module).items() if not n.startswith("_") and getattr(v, "__module__", None) == module_name)
        raise UserError(f"{key}: module {module_name!r} has no {attribute!r}; it defines: {', '.join(there) or 'nothing'}") from error


def blame(error: BaseException) -> str:
    """One line saying what went wrong and where in the user's own code: ``digits_model/model.py:12: ValueError: …``.

    The place is the innermost frame of user code; of the platform's own frames none is ever blamed on the user.
    """
    if isinstance(error, SyntaxError) and error.filename:
        source = f": {error.text.strip()}" if error.text else ""
        return f"{_short(error.filename)}:{error.lineno}: {type(error).__name__}: {error.msg}{source}"
    text = " ".join(str(error).split())
    said = f"{type(error).__name__}: {text[:500]}" if text else type(error).__name__
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if is_user_file(frame.filename):
            return f"{_short(frame.filename)}:{frame.lineno}: {said}"
    return said


def is_user_file(path: str) -> bool:
    """Whether a file is part of an unpacked package of the user."""
    return _package_folder(path) is not None


def _package_folder(path: str) -> str | None:
    marker = f"{os.sep}{FOLDER}{os.sep}"
    for entry in sys.path:
        # install() puts <work>/code/<64 hex digits> on the path.
        if marker in entry and len(os.path.basename(entry)) == 64 and path.startswith(entry + os.sep):
            return entry
    return None


def _short(path: str) -> str:
    folder = _package_folder(path)
    return os.path.relpath(path, folder) if folder else path


def _hint(module: str) -> str:
    parent, _, _ = module.rpartition(".")
    if not parent:
        return "; is it in the package that was published?"
    spec = importlib.util.find_spec(parent)
    places = list(spec.submodule_search_locations or ()) if spec else []
    found = sorted(path.stem for place in places for path in Path(place).glob("*.py") if path.stem != "__init__")
    return f"; {parent} has: {', '.join(found)}" if found else ""


__all__ = ["blame", "install", "is_user_file", "resolve", "unpack"]
