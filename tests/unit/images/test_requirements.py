"""What the images install: the project's own versions, all of what the sources import, and the sample data of the embedded cluster."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from local.bootstrap import SAMPLES
from local.toolchain import ensure_uv, uv_environment

CHECKOUT = Path(__file__).resolve().parents[3]
LISTS = ("trainer/requirements", "trainer/requirements-gpu", "airflow/requirements")


def pins(path: Path) -> dict[str, str]:
    """Version by package; every line must be such a pin."""
    found = {}
    for line in path.read_text().splitlines():
        text = line.partition("#")[0].strip()
        if text:
            match = re.fullmatch(r"([A-Za-z0-9._-]+)==([^;\s]+)", text)
            assert match, f"{path}: {line!r} is no pin"
            found[match[1]] = match[2]
    return found


@pytest.mark.parametrize("name", LISTS)
def test_versions_are_the_projects(name: str) -> None:
    """What was tested in the environment is what runs in pods."""
    project = pins(CHECKOUT / "requirements.txt")
    image = pins(CHECKOUT / "images" / f"{name}.txt")
    shared = project.keys() & image.keys()
    assert len(shared) > 40
    assert {package: image[package] for package in shared} == {package: project[package] for package in shared}


def test_neither_image_holds_the_other_side() -> None:
    trainer, airflow = (pins(CHECKOUT / "images" / kind / "requirements.txt") for kind in ("trainer", "airflow"))
    assert not [package for package in trainer if package.startswith(("apache-airflow", "kubernetes", "fastapi", "sqlalchemy"))]
    assert not [package for package in airflow if package.startswith(("tensorflow", "keras", "numpy", "pyarrow"))]


def test_the_gpu_variant_differs_by_tensorflow_and_nvidias_libraries_alone() -> None:
    cpu, gpu = (pins(CHECKOUT / "images" / "trainer" / name) for name in ("requirements.txt", "requirements-gpu.txt"))
    assert cpu.pop("tensorflow-cpu") == gpu.pop("tensorflow")
    nvidia = {package for package in gpu if package.startswith("nvidia-")}
    assert {"nvidia-cudnn-cu12", "nvidia-nccl-cu12"} <= nvidia
    assert {package: version for package, version in gpu.items() if package not in nvidia} == cpu


def test_the_sample_data_is_the_environments() -> None:
    samples = pins(CHECKOUT / "images" / "trainer" / "requirements-samples.txt")
    assert tuple(f"{package}=={version}" for package, version in samples.items()) == SAMPLES


@pytest.mark.long
@pytest.mark.parametrize("name", LISTS)
def test_the_lists_are_what_their_sources_resolve_to(name: str, tmp_path: Path) -> None:
    """Also the GPU variant's, which is too large to be built here. Asks the package index."""
    folder = tmp_path / "images" / Path(name).parent
    folder.mkdir(parents=True)
    shutil.copy(CHECKOUT / "requirements.txt", tmp_path)
    for suffix in (".in", ".txt"):
        shutil.copy(CHECKOUT / "images" / f"{name}{suffix}", folder)
    stem = Path(name).name
    words = ["--quiet", "--no-header", "--no-annotate", "--python-version", "3.11", "-o", f"{stem}.txt", f"{stem}.in"]
    uv = ensure_uv(lambda message: None)
    done = subprocess.run([uv, "pip", "compile", *words], cwd=folder, env=uv_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (folder / f"{stem}.txt").read_text() == (CHECKOUT / "images" / f"{name}.txt").read_text(), "run `make lock`"
