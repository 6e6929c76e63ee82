"""What is built into which image, and under which name: the words for ``docker build``, from a checkout and this machine's pip.

Nothing is run here. The Dockerfiles are those of ``images/``; a build by hand needs no more than they say.
"""

from __future__ import annotations

import configparser
import hashlib
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trainyard.errors import ConfigError

KINDS: Final = ("trainer", "airflow")
DEFAULT_BASE: Final = "python:3.11-slim-bookworm"
LOCAL: Final = "localhost"
"""The registry in the names of images that are not pushed."""
GPU_REQUIREMENTS: Final = "requirements-gpu.txt"
_INPUTS: Final = {
    "trainer": ("images/trainer/Dockerfile", "images/trainer/src", "images/trainer/start", "images/trainer/requirements*.txt"),
    "airflow": (
        "images/airflow/Dockerfile",
        "images/airflow/requirements.txt",
        "images/airflow/*.py",
        "images/trainer/start",
        "pyproject.toml",
        "plugins",
        "dags",
    ),
}
_TAG: Final = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$")
_REGISTRY: Final = re.compile(r"^[a-zA-Z0-9][a-zA-Z0-9.-]*(:\d+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$")
_PIP_ARGUMENTS: Final = {"PIP_INDEX_URL": "index-url", "PIP_EXTRA_INDEX_URL": "extra-index-url", "PIP_TRUSTED_HOST": "trusted-host"}
"""Build argument (and pip's own variable) → the key in pip.conf."""
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
"""Docker knows these as build arguments by itself, and keeps them out of the history."""


@dataclass(frozen=True)
class ImageBuild:
    """One image to be built."""

    kind: str
    """``trainer`` or ``airflow``."""
    reference: str
    """``registry/trainyard/kind:tag``."""
    root: Path
    arguments: Mapping[str, str]
    network: str
    environment: Mapping[str, str]
    """Build arguments whose values ``docker`` is to take from its environment: they may hold passwords, and its words anyone may read."""

    def build_words(self) -> list[str]:
        """What follows ``docker``."""
        context = self.root / "images" / "trainer" if self.kind == "trainer" else self.root
        words = [
            "build",
            "--force-rm",
            "--network",
            self.network,
            "--tag",
            self.reference,
            "--file",
            str(self.root / "images" / self.kind / "Dockerfile"),
        ]
        for name, value in self.arguments.items():
            words += ["--build-arg", f"{name}={value}"]
        for name in self.environment:
            words += ["--build-arg", name]
        return [*words, str(context)]


def plan(root: Path, *, registry: str | None, tag: str, base: str, only: str | None, gpu: bool, network: str) -> list[ImageBuild]:
    """The builds that were asked for.

    Raises:
        ConfigError: a registry or tag that cannot be in an image's name.
    """
    if not _TAG.match(tag):
        raise ConfigError(f"--tag {tag}: letters, digits, dots, dashes and underscores, at most 128, as 1.2.0 or dev")
    where = (registry or LOCAL).rstrip("/")
    if not _REGISTRY.match(where):
        raise ConfigError(f"--push {registry}: name a registry, as localhost:5000 or registry.example.org/team, without https://")
    common = {"BASE": base, "VERSION": version(root), "REVISION": revision(root)}
    packages = package_arguments(os.environ, _pip_files(os.environ))
    builds = []
    for kind in KINDS:
        if only not in (None, kind):
            continue
        with_gpu = gpu and kind == "trainer"
        arguments = common | ({"REQUIREMENTS": GPU_REQUIREMENTS} if with_gpu else {})
        builds.append(ImageBuild(kind, f"{where}/trainyard/{kind}:{tag}{'-gpu' if with_gpu else ''}", root, arguments, network, packages))
    return builds


def version(root: Path) -> str:
    """The project's, from pyproject.toml."""
    return str(tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def revision(root: Path) -> str:
    """The commit, with ``-dirty`` where tracked files differ from it; ``unknown`` outside of a repository."""
    words = ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def content_tag(root: Path, base: str) -> str:
    """``<version>-<digest>`` of all that goes into the images.

    Nodes that have an image of a name never fetch another of that name (``IfNotPresent``): a name that says the content cannot be stale.
    """
    digest = hashlib.sha256(base.encode() + b"\0")
    for path in sorted({path for patterns in _INPUTS.values() for pattern in patterns for path in _files(root, pattern)}):
        digest.update(f"{path.relative_to(root)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return f"{version(root)}-{digest.hexdigest()[:12]}"


def _files(root: Path, pattern: str) -> Iterator[Path]:
    for found in root.glob(pattern):
        for path in found.rglob("*") if found.is_dir() else (found,):
            # As the .dockerignore files have it.
            if path.is_file() and not any(part == "__pycache__" or part.endswith(".egg-info") for part in path.parts):
                yield path


def package_arguments(environment: Mapping[str, str], pip_files: Sequence[Path]) -> dict[str, str]:
    """Build arguments by which pip in a build asks whom pip on this machine asks.

    pip's own order: a variable before a file, and of the files the last one that says something.

    Raises:
        ConfigError: a pip.conf that cannot be read.
    """
    found: dict[str, str] = {}
    for path in pip_files:
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, OSError, UnicodeDecodeError) as e:
            raise ConfigError(f"{path} cannot be read as pip's configuration ({e}): mend it, or name another in PIP_CONFIG_FILE") from e
        for section in ("global", "install"):
            for argument, key in _PIP_ARGUMENTS.items():
                if value := parser.get(section, key, fallback="").strip():
                    found[argument] = " ".join(value.split())
    found |= {name: environment[name] for name in _PIP_ARGUMENTS if environment.get(name)}
    return found | {name: environment[name] for name in _PROXIES if environment.get(name)}


def _pip_files(environment: Mapping[str, str]) -> list[Path]:
    """Where pip looks, the least important first. Source: https://pip.pypa.io/en/stable/topics/configuration/."""
    named = environment.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return []
    home = Path.home()
    config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    files = [Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf"), home / ".pip" / "pip.conf", config / "pip" / "pip.conf"]
    return [path for path in [*files, *([Path(named)] if named else [])] if path.is_file()]
