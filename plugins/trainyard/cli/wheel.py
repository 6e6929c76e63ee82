"""Makes a wheel of a package folder: the same folder gives the same bytes on every machine, and nothing in it is executed.

It is what ``trainyard publish`` sends. Not a build tool: no dependencies, no compiled code, no set-up script; the trainer puts the wheel
on ``sys.path`` as it is. Format: https://packaging.python.org/en/latest/specifications/binary-distribution-format/
"""

from __future__ import annotations

import ast
import base64
import hashlib
import io
import keyword
import os
import stat
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard.errors import ConfigError, NotFoundError

_NATIVE = {".so", ".pyd", ".dll", ".dylib"}
_NEVER_PACKED = {"__pycache__", "node_modules"}
_NEVER_SEARCHED = _NEVER_PACKED | {"var", "build", "dist", "site-packages"}
_SEARCH_DEPTH = 3


@dataclass(frozen=True)
class Wheel:
    """A package as one file."""

    package: str
    data: bytes
    files: int

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


def build(folder: Path) -> Wheel:
    """The wheel of the package in ``folder`` (the one with the ``__init__.py``).

    Raises:
        ConfigError: with every problem found: a syntax error as ``file:line``, compiled code, a link that leaves the folder.
    """
    folder = folder.resolve()
    package = folder.name
    if not package.isidentifier() or keyword.iskeyword(package):
        raise ConfigError(f"{folder}: a package's folder is named like a Python name, `{package}` is not: rename it")
    if not (folder / "__init__.py").is_file():
        raise ConfigError(f"{folder}: no __init__.py in it: name the package's own folder")
    problems: list[str] = []
    entries: list[tuple[str, bytes]] = []
    for path in _files(folder):
        name = f"{package}/{path.relative_to(folder).as_posix()}"
        if not path.resolve().is_relative_to(folder):
            problems.append(f"{path}: a link that leaves the package's folder: copy the file in")
        elif path.suffix in _NATIVE:
            problems.append(f"{path}: compiled code cannot be published, a package is pure Python: it belongs in the trainer's image")
        else:
            data = path.read_bytes()
            if path.suffix == ".py" and (problem := _syntax_problem(path, data)):
                problems.append(problem)
            entries.append((name, data))
    if problems:
        raise ConfigError(problems)
    return Wheel(package, _archive(package, entries), len(entries))


def find(package: str, roots: Sequence[Path]) -> Path:
    """The folder of ``package`` somewhere (≤ 3 levels) below ``roots``.

    Raises:
        NotFoundError: there is none.
        ConfigError: there are several and they differ.
    """
    found = {
        folder
        for root in roots
        for folder in _folders(root.resolve(), _SEARCH_DEPTH)
        if folder.name == package and (folder / "__init__.py").is_file()
    }
    if not found:
        places = ", ".join(str(root.resolve()) for root in roots)
        raise NotFoundError(f"no folder `{package}` with an __init__.py below {places}: name it, `trainyard publish DIR`")
    if len(found) > 1:
        raise ConfigError(f"several folders are named `{package}`: {', '.join(map(str, sorted(found)))}: name one, `trainyard publish DIR`")
    return found.pop()


def check_build(folder: Path, build: str) -> None:
    """Refuses a package in which ``module:function`` cannot be; it reads the source and runs none of it.

    Raises:
        ConfigError: the module's file is not there, or it plainly has no such name.
    """
    module, _, name = build.partition(":")
    parts = module.split(".")
    base = folder.joinpath(*parts[1:])
    path = next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file() and p != folder.with_suffix(".py")), None)
    if parts[0] != folder.name or path is None:
        raise ConfigError(f"{folder}: the pipeline builds its model by `{build}`, and there is no module `{module}` in it")
    names = set(_top_level_names(ast.parse(path.read_bytes(), filename=str(path))))
    if name not in names and "*" not in names:
        known = ", ".join(sorted(n for n in names if not n.startswith("_"))) or "nothing"
        raise ConfigError(f"{path}: the pipeline builds its model by `{build}`, and there is no `{name}` in it: it defines {known}")


def _files(folder: Path) -> Iterator[Path]:
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if f not in _NEVER_PACKED and not f.startswith("."))
        for name in files:
            if not name.startswith(".") and not name.endswith((".pyc", ".pyo")):
                yield Path(here, name)


def _folders(root: Path, depth: int) -> Iterator[Path]:
    yield root
    if depth:
        try:
            children = sorted(p for p in root.iterdir() if p.is_dir() and not p.is_symlink())
        except OSError:
            return  # a folder that is not ours to read cannot hold our package
        for child in children:
            if child.name not in _NEVER_SEARCHED and not child.name.startswith("."):
                yield from _folders(child, depth - 1)


def _syntax_problem(path: Path, data: bytes) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a doubtful escape is the author's affair
            compile(data, str(path), "exec", dont_inherit=True)
    except SyntaxError as e:
        return f"{path}:{e.lineno or 1}: {e.msg}"
    except ValueError as e:
        return f"{path}: {e}"
    return None


def _top_level_names(tree: ast.Module) -> Iterator[str]:
    """The names a module binds at its top level, in any branch; ``*`` for an import of everything."""
    todo: list[ast.stmt] = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name))
        todo += _statements_in(node)


def _statements_in(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements directly in a branch, a loop, a ``try`` or a ``match``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            yield from _statements_in(child)


def _archive(package: str, entries: list[tuple[str, bytes]]) -> bytes:
    """The wheel's bytes. Stored, not deflated: what zlib makes of the same input differs between machines."""
    content = hashlib.sha256()
    for name, data in sorted(entries):
        content.update(f"{len(name)}:{name}:{len(data)}:".encode())
        content.update(data)
    version = f"0+{content.hexdigest()[:12]}"
    info = f"{package}-{version}.dist-info"
    entries = [
        *sorted(entries),
        (f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n".encode()),
        (f"{info}/WHEEL", b"Wheel-Version: 1.0\nGenerator: trainyard\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
    ]
    record = "".join(f"{_csv(name)},sha256={_digest(data)},{len(data)}\n" for name, data in entries) + f"{info}/RECORD,,\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in [*entries, (f"{info}/RECORD", record.encode())]:
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system = 3  # as on Unix, wherever it is made
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(entry, data)
    return buffer.getvalue()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _csv(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if "," in name or '"' in name else name
