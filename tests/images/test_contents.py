"""What is in an image and what is not: labels, layers, users, and nothing of how it was built."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import pytest

from tests.images.conftest import CHECKOUT, PACKAGES, Image, layers_of, run

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

MIB = 2**20
MOST_OF_OUR_CODE = 5 * MIB
MOST_OF_THE_TRAINER = 520_000_000
LISTING = r"""
import json, os, stat
found = {"setuid": [], "caches": [], "tools": [], "others": []}
for root, folders, files in os.walk("/"):
    if root == "/":
        folders[:] = [name for name in folders if name not in ("proc", "sys", "dev")]
    if os.path.basename(root) in (".cache", "pip-cache", "http-v2") or root in ("/tmp/samples", "/source", "/opt/build"):
        found["caches"].append(root)
    for name in files:
        path = os.path.join(root, name)
        about = os.lstat(path)
        if stat.S_ISREG(about.st_mode) and about.st_mode & 0o6000:
            found["setuid"].append(path)
        if name in ("gcc", "cc", "c++", "g++", "clang", "ld", "make", "libclang.so", "bazel", "npm"):
            found["tools"].append(path)
        if root.startswith("/opt") and (about.st_uid or about.st_mode & 0o002 and not stat.S_ISLNK(about.st_mode)):
            found["others"].append(path)
print(json.dumps(found))
"""


def test_it_holds_no_tool_no_cache_and_nothing_that_makes_one_root(image: Image) -> None:
    """Read as root, so that nothing hides; and what runs may not change what it runs."""
    found = json.loads(image.python(LISTING, options=("--user", "0", "--cap-add", "DAC_READ_SEARCH")))
    assert found == {"setuid": [], "caches": [], "tools": [], "others": []}


def test_nothing_says_where_its_packages_came_from(image: Image) -> None:
    """pip in the build was told to trust a host: it is neither in the history, nor in the settings, nor in any file."""
    history = run("docker", "history", "--no-trunc", "--format", "{{.CreatedBy}}", image.reference).stdout
    assert "COPY" in history
    settings = run("docker", "image", "inspect", image.reference).stdout
    assert PACKAGES not in history + settings
    code = (
        "import os; wanted = bytes.fromhex('%s')\n"
        "print([os.path.join(r, n) for top in ('/opt', '/etc', '/work', '/root', '/home', '/var', '/tmp') for r, _, names in os.walk(top)"
        " for n in names if os.path.isfile(os.path.join(r, n)) and wanted in open(os.path.join(r, n), 'rb').read()])"
    )
    options = ("--user", "0", "--cap-add", "DAC_READ_SEARCH")
    assert image.python(code % PACKAGES.encode().hex(), options=options).strip() == "[]"
    # The search finds what is there.
    assert "'/etc/passwd'" in image.python(code % b"trainyard:x:65532:65532".hex(), options=options)


def test_labels_say_what_it_is(image: Image) -> None:
    labels = json.loads(run("docker", "image", "inspect", "--format", "{{json .Config.Labels}}", image.reference).stdout)
    version = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["version"]
    assert labels["org.opencontainers.image.title"] == f"trainyard/{image.kind}"
    assert labels["org.opencontainers.image.version"] == version
    revision = labels["org.opencontainers.image.revision"].removesuffix("-dirty")
    assert len(revision) == 40
    assert int(revision, 16)


def test_it_runs_as_a_user_with_a_name_and_without_rights(image: Image) -> None:
    config = json.loads(run("docker", "image", "inspect", "--format", "{{json .Config}}", image.reference).stdout)
    assert (config["User"], config["WorkingDir"]) == ("65532:65532", "/work")
    code = "import getpass, os; print(os.getuid(), os.getgid(), getpass.getuser(), os.path.expanduser('~'), os.access('/opt', os.W_OK))"
    assert image.python(code).strip() == "65532 65532 trainyard /work False"


def test_a_change_of_our_code_is_one_small_layer(trainer: Image, tmp_path: Path, base: str) -> None:
    """A developer's loop: what a node downloads after a change is the last layer alone."""
    assert trainer.layers[-1][1] < MOST_OF_OUR_CODE
    context = tmp_path / "trainer"
    shutil.copytree(CHECKOUT / "images" / "trainer", context, ignore=shutil.ignore_patterns("__pycache__"))
    with (context / "src/trainer/cli.py").open("a") as file:
        file.write("\n# another line\n")
    changed = trainer.reference.rpartition(":")[0] + ":changed"
    words = ["docker", "build", "--network", "host", "--build-arg", f"BASE={base}", "--build-arg", "PIP_TRUSTED_HOST", "--tag", changed]
    run(*words, str(context), timeout_s=900, PIP_TRUSTED_HOST=PACKAGES)
    try:
        run("docker", "push", changed, timeout_s=300)
        layers = layers_of(changed)
        assert [digest for digest, _ in layers[:-1]] == [digest for digest, _ in trainer.layers[:-1]]
        assert layers[-1][0] != trainer.layers[-1][0]
        assert layers[-1][1] < MOST_OF_OUR_CODE
    finally:
        run("docker", "rmi", changed, check=False)


def test_airflows_code_layer_is_small_too(airflow: Image) -> None:
    assert airflow.layers[-1][1] < MOST_OF_OUR_CODE


def test_the_trainer_is_as_small_as_was_promised(trainer: Image, record_property: pytest.RecordProperty) -> None:
    """What a node downloads that has nothing of it."""
    record_property("packed_bytes", trainer.packed)
    print(
        f"trainer: {trainer.packed / 1e6:.0f} MB packed, {trainer.unpacked / 1e6:.0f} MB unpacked; layers {[s for _, s in trainer.layers]}"
    )
    assert trainer.packed <= MOST_OF_THE_TRAINER
