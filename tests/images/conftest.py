"""The images, built for real by the command that people use, and a registry of the test's own that says what they weigh packed.

What they need is in ``tests/fixtures/docker.py``, and Debian's ``docker-registry``.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.docker import base, engine, run
from tests.fixtures.s3 import free_ports

__all__ = ["base", "engine", "run"]

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGES = "packages.invalid"
"""A host that pip is told to trust in the builds: where a build's settings go can be seen by it."""
BUILD_DEADLINE_S = 1500


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
