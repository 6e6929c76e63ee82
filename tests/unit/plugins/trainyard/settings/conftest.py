"""A copy of the sample configuration that a test may spoil."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from trainyard.errors import ConfigError
from trainyard.settings import Settings, load

SAMPLES = Path(__file__).parents[5] / "config"


class Config:
    """The folder; files are named ``pipelines/mnist-cnn``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.yaml"

    def write(self, name: str, text: str) -> None:
        self.path(name).write_text(text, encoding="utf-8")

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text that is there exactly once."""
        text = self.path(name).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {name}"
        self.write(name, text.replace(old, new))

    def load(self, **environ: str) -> Settings:
        return load(self.folder, environ=environ)

    def problems(self) -> list[str]:
        """What ``load`` complains of; fails the test if it does not."""
        with pytest.raises(ConfigError) as caught:
            self.load()
        assert str(caught.value) == "\n".join(caught.value.problems)
        return list(caught.value.problems)

    def problem(self) -> str:
        """The one complaint there must be."""
        found = self.problems()
        assert len(found) == 1, found
        return found[0]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    folder = tmp_path / "config"
    shutil.copytree(SAMPLES, folder)
    return Config(folder)
