"""What an image reference means here: local/images.yaml maps it to a PATH, an environment and an entry point.

Nothing is pulled. A reference that is not mapped is an ErrImagePull, as a name that no registry knows.
Grammar of references: github.com/distribution/reference.
"""

import fnmatch
import re
import string
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")

_HOST = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])(?:\.[a-zA-Z0-9][a-zA-Z0-9-]*)*(?::[0-9]+)?"
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"^(?:{_HOST}/)?{_PART}(?:/{_PART})*(?P<tag>:[\w][\w.-]{{0,127}})?(?P<digest>@[A-Za-z][A-Za-z0-9+._-]*:[0-9a-fA-F]{{32,}})?$"
)


class InvalidImageName(ValueError):
    """The reference is not one that any runtime would take."""


class ImageNotMapped(LookupError):
    """local/images.yaml has no entry for the reference."""


class ImagesFileError(ValueError):
    """local/images.yaml itself is wrong; the message names file, key and way out."""


@dataclass(frozen=True)
class Image:
    """How a container of this image runs."""

    match: str
    entrypoint: tuple[str, ...]
    path: tuple[str, ...]
    env: dict[str, str]

    @property
    def search_path(self) -> str:
        """The value of PATH."""
        return ":".join(dict.fromkeys((*self.path, *SYSTEM_PATH)))


def normalized(reference: str) -> str:
    """The reference with the tag it stands for. Raises InvalidImageName."""
    found = _REFERENCE.match(reference)
    if not found:
        raise InvalidImageName(
            f'Failed to apply default image tag "{reference}": couldn\'t parse image name "{reference}": invalid reference format'
        )
    return reference if found["tag"] or found["digest"] else f"{reference}:latest"


class Images:
    """The map, read again whenever the file has changed: an image added while a pod waits is found at its next try."""

    def __init__(self, path: Path, checkout: Path) -> None:
        """Raises ImagesFileError."""
        self.path = path
        self._values = {"PYTHON": sys.executable, "VENV": sys.prefix, "CHECKOUT": str(checkout)}
        self._lock = threading.Lock()
        self._stamp: tuple[int, int] | None = None
        self._images: list[Image] = []
        self._load()

    def find(self, reference: str) -> Image:
        """The image of a reference. Raises InvalidImageName, ImageNotMapped or ImagesFileError."""
        name = normalized(reference)
        with self._lock:
            self._load()
            for image in self._images:
                if fnmatch.fnmatchcase(name, image.match):
                    return image
        raise ImageNotMapped(
            f'the embedded cluster runs only images that {self.path} maps, and it has no entry that matches "{reference}": add one'
        )

    def _load(self) -> None:
        try:
            status = self.path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            if stamp == self._stamp:
                return
            document = yaml.safe_load(self.path.read_text(encoding="utf-8"))
        except OSError as problem:
            raise ImagesFileError(f"{self.path}: cannot be read: {problem.strerror}") from problem
        except yaml.YAMLError as problem:
            raise ImagesFileError(f"{self.path}: not YAML: {problem}") from problem
        if not isinstance(document, dict) or set(document) != {"images"} or not isinstance(document["images"], list):
            raise ImagesFileError(f"{self.path}: must hold one key, `images`, with a list of images")
        self._images = [self._image(index, entry) for index, entry in enumerate(document["images"])]
        self._stamp = stamp

    def _image(self, index: int, entry: Any) -> Image:
        where = f"{self.path}: images[{index}]"
        if not isinstance(entry, dict) or not isinstance(entry.get("match"), str):
            raise ImagesFileError(f"{where}: must have a `match`: a glob on the image reference")
        unknown = sorted(set(entry) - {"match", "entrypoint", "path", "env"})
        if unknown:
            raise ImagesFileError(f"{where}.{unknown[0]}: unknown key; known are match, entrypoint, path, env")
        lists: dict[str, tuple[str, ...]] = {}
        for key in ("entrypoint", "path"):
            value = entry.get(key, [])
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                raise ImagesFileError(f"{where}.{key}: {value!r} must be a list of strings")
            lists[key] = tuple(self._fill(f"{where}.{key}", item) for item in value)
        env = entry.get("env", {})
        if not isinstance(env, dict) or not all(isinstance(value, str) for pair in env.items() for value in pair):
            raise ImagesFileError(f"{where}.env: {env!r} must map names to strings (quote numbers)")
        return Image(
            entry["match"], lists["entrypoint"], lists["path"], {key: self._fill(f"{where}.env.{key}", value) for key, value in env.items()}
        )

    def _fill(self, where: str, value: str) -> str:
        try:
            return string.Template(value).substitute(self._values)
        except (KeyError, ValueError) as problem:
            raise ImagesFileError(
                f"{where}: {value!r}: unknown variable ({problem}); known are {', '.join('${' + name + '}' for name in self._values)}"
            ) from problem
