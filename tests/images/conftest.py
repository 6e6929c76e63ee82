"""The images, built for real by the command that people use, and a registry of the test's own that says what they weigh packed.

They need Docker's engine: one that answers, or root and Debian's ``docker.io``, which is then started for the session (without touching
the machine's firewall) and ended with it. ``TRAINYARD_BASE_IMAGE`` names the Python image that they stand on; where no registry can be
reached, it is a local one. Without these the tests are skipped, and say so.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.s3 import free_ports

CHECKOUT = Path(__file__).resolve().parents[2]
BASES = ("trainyard/python:3.11-bookworm", "python:3.11-slim-bookworm")
"""Looked for on this machine where TRAINYARD_BASE_IMAGE names none."""
PACKAGES = "packages.invalid"
"""A host that pip is told to trust in the builds: where a build's settings go can be seen by it."""
START_DEADLINE_S = 60
BUILD_DEADLINE_S = 1500


def run(*words: str, timeout_s: float = 120, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a program; its output is in the error when it fails."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout_s, check=False, env={**os.environ, **environment})
    if check:
        assert done.returncode == 0, f"{' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@dataclass(frozen=True)
class Image:
    """A built and pushed image."""

    kind: str
    reference: str
    unpacked: int
    layers: tuple[tuple[str, int], ...]
    """Digest and packed bytes of each, the lowest first."""

    @property
    def packed(self) -> int:
        return sum(size for _, size in self.layers)

    def run(self, *words: str, options: Sequence[str] = (), check: bool = True, timeout_s: float = 180) -> subprocess.CompletedProcess[str]:
        """The command in a container as a pod has it: the image's user, a read-only root, an empty folder to work in; and no network."""
        command, *arguments = words
        return run(
            *("docker", "run", "--rm", "--read-only", "--tmpfs", "/work", "--network", "none", "--cap-drop", "ALL"),
            *("--security-opt", "no-new-privileges", *options, "--entrypoint", command, self.reference, *arguments),
            check=check,
            timeout_s=timeout_s,
        )  # fmt: skip

    def python(self, code: str, **keywords: Any) -> str:
        """What a Python program prints in such a container."""
        return self.run("python", "-c", code, **keywords).stdout


def _answers() -> bool:
    return run("docker", "version", check=False).returncode == 0


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Docker's engine."""
    if shutil.which("docker") is None:
        pytest.skip("no `docker` on PATH")
    if _answers():
        yield
        return
    dockerd = shutil.which("dockerd")
    if dockerd is None or os.geteuid() != 0:
        pytest.skip("Docker's engine does not answer; starting one needs root and `dockerd`")
    log = tmp_path_factory.mktemp("engine") / "log"
    with log.open("w") as output:
        program = subprocess.Popen([dockerd, "--bridge=none", "--iptables=false"], stdout=output, stderr=output, start_new_session=True)
    try:
        until = time.monotonic() + START_DEADLINE_S
        while not _answers():
            assert program.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < until, f"the engine does not answer:\n{log.read_text()[-2000:]}"
            time.sleep(0.3)
        yield
    finally:
        program.terminate()
        program.wait(timeout=60)


@pytest.fixture(scope="session")
def base(engine: None) -> str:
    """The Python image to stand on."""
    named = os.environ.get("TRAINYARD_BASE_IMAGE")
    for reference in [named] if named else BASES:
        if run("docker", "image", "inspect", reference, check=False).returncode == 0:
            return reference
    if named and run("docker", "pull", named, check=False, timeout_s=600).returncode == 0:
        return named
    pytest.skip(f"no base image: {named or ' or '.join(BASES)} (TRAINYARD_BASE_IMAGE names another)")


@pytest.fixture(scope="session")
def registry(engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """``127.0.0.1:port`` of an empty registry."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("no `docker-registry` on PATH (Debian's package of that name)")
    folder = tmp_path_factory.mktemp("registry")
    (port,) = free_ports(1)
    (folder / "config.yml").write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {folder}/data}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\nlog: {{level: warn}}\n"
    )
    with (folder / "log").open("w") as output:
        server = subprocess.Popen([program, "serve", str(folder / "config.yml")], stdout=output, stderr=output, start_new_session=True)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(timeout=30)
        shutil.rmtree(folder / "data", ignore_errors=True)


def layers_of(reference: str) -> tuple[tuple[str, int], ...]:
    """Digest and packed bytes of each layer in the registry, the lowest first."""
    document = json.loads(run("docker", "manifest", "inspect", "--insecure", reference).stdout)
    return tuple((str(layer["digest"]), int(layer["size"])) for layer in document["layers"])


@pytest.fixture(scope="session")
def images(base: str, registry: str) -> Iterator[dict[str, Image]]:
    """Both images, built and pushed by ``trainyard images build``."""
    command = [str(Path(sys.executable).with_name("trainyard")), "images", "build", "--json", "--base", base, "--push", registry]
    done = run(*command, timeout_s=BUILD_DEADLINE_S, PIP_TRUSTED_HOST=PACKAGES)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    built = {}
    for line in lines:
        if "reference" in line:
            image = Image(line["image"], line["reference"], line["bytes"], layers_of(line["reference"]))
            assert line["packed_bytes"] == image.packed
            assert re.fullmatch(rf"{re.escape(registry)}/trainyard/{image.kind}:\d+\.\d+\.\d+-[0-9a-f]{{12}}", image.reference)
            built[image.kind] = image
    assert set(built) == {"trainer", "airflow"}
    yield built
    # The layers stay as the next build's cache under no name of this registry, which is gone.
    for image in built.values():
        run("docker", "tag", image.reference, f"localhost/trainyard/{image.kind}:tested", check=False)
        run("docker", "rmi", image.reference, check=False)


@pytest.fixture(scope="session")
def trainer(images: dict[str, Image]) -> Image:
    return images["trainer"]


@pytest.fixture(scope="session")
def airflow(images: dict[str, Image]) -> Image:
    return images["airflow"]


@pytest.fixture(params=["trainer", "airflow"])
def image(request: pytest.FixtureRequest, images: dict[str, Image]) -> Image:
    """Each of the two."""
    return images[request.param]
