from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from local.kubelet.images import ImageNotMapped, Images, ImagesFileError, InvalidImageName, normalized
from local.kubelet.processes import CHECKOUT


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("busybox", "busybox:latest"),
        ("localhost:5000/trainyard/trainer:dev", "localhost:5000/trainyard/trainer:dev"),
        ("a.b/c", "a.b/c:latest"),
        ("a/b@sha256:" + "0" * 64, "a/b@sha256:" + "0" * 64),
        ("a/b:t@sha256:" + "0" * 64, "a/b:t@sha256:" + "0" * 64),
    ],
)
def test_references(reference: str, name: str) -> None:
    assert normalized(reference) == name


@pytest.mark.parametrize("reference", ["", "a/Upper", "a b", "a:b:c/d", "a//b", "a/b:", "-a", "a@sha256:12"])
def test_what_is_no_reference(reference: str) -> None:
    with pytest.raises(InvalidImageName, match="invalid reference format"):
        normalized(reference)


def test_the_first_match_wins_and_variables_are_filled_in(tmp_path: Path) -> None:
    file = tmp_path / "images.yaml"
    file.write_text(
        "images:\n"
        '  - {match: "a/b:1", entrypoint: ["${PYTHON}", "-m", "x"], path: ["${VENV}/bin"], env: {P: "${CHECKOUT}/src"}}\n'
        '  - {match: "a/*"}\n'
    )
    images = Images(file, Path("/checkout"))
    first = images.find("a/b:1")
    assert first.entrypoint == (sys.executable, "-m", "x")
    assert first.env == {"P": "/checkout/src"}
    assert first.search_path == f"{sys.prefix}/bin:/usr/local/bin:/usr/bin:/bin"
    assert images.find("a/c").entrypoint == ()


def test_an_image_that_is_not_mapped_names_the_file(images: Images) -> None:
    with pytest.raises(ImageNotMapped, match=r"images\.yaml.*nginx"):
        images.find("nginx")


def test_a_change_of_the_file_is_seen(images: Images) -> None:
    images.path.write_text('images: [{match: "nginx:*", entrypoint: [nginx]}]\n')
    os.utime(images.path, ns=(1, 1))
    assert images.find("nginx").entrypoint == ("nginx",)
    with pytest.raises(ImageNotMapped):
        images.find("example.org/app:1")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "one key, `images`"),
        ("images: {}", "one key, `images`"),
        ("images: [{entrypoint: [x]}]", r"images\[0\].*`match`"),
        ("images: [{match: a, entry: [x]}]", r"images\[0\]\.entry: unknown key"),
        ("images: [{match: a, entrypoint: x}]", r"images\[0\]\.entrypoint: 'x' must be a list"),
        ("images: [{match: a, env: {A: 1}}]", r"images\[0\]\.env.*quote numbers"),
        ("images: [{match: a, path: ['${HOME}/bin']}]", r"images\[0\]\.path.*\$\{VENV\}"),
        ("images: [", "not YAML"),
    ],
)
def test_a_wrong_file_is_one_error_with_file_key_and_way_out(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "images.yaml"
    file.write_text(text)
    with pytest.raises(ImagesFileError, match=words) as problem:
        Images(file, tmp_path)
    assert str(file) in str(problem.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ImagesFileError, match="cannot be read: No such file"):
        Images(tmp_path / "none.yaml", tmp_path)


def test_the_images_of_the_embedded_cluster_run_the_environments_python() -> None:
    images = Images(CHECKOUT / "local" / "images.yaml", CHECKOUT)
    for name in ("trainer", "airflow", "shell"):
        image = images.find(f"localhost/trainyard/{name}:dev")
        first = image.search_path.split(":")[0]
        assert os.path.realpath(f"{first}/python") == os.path.realpath(sys.executable), name
        assert image.entrypoint
