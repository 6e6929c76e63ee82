"""An image of a user's own, made from the trainer's: the guide's example as it stands there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.images.conftest import CHECKOUT, Image, run

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

GUIDE = CHECKOUT / "docs" / "guides" / "images.md"


def build(dockerfile: str, trainer: Image, folder: Path, tag: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Builds it, standing on the image that was built here."""
    (folder / "Dockerfile").write_text(re.sub(r"^FROM \S+/trainyard/trainer:\S+", f"FROM {trainer.reference}", dockerfile, flags=re.M))
    return run("docker", "build", "--force-rm", "--network", "host", "--tag", tag, str(folder), timeout_s=600, check=check)


def test_the_guides_image_has_the_package_and_runs_as_the_trainers(trainer: Image, tmp_path: Path) -> None:
    (example,) = re.findall(r"```dockerfile\n(FROM \S+/trainyard/trainer:.*?)```", GUIDE.read_text(), flags=re.S)
    tag = "localhost/trainyard-test/own:1"
    build(example, trainer, tmp_path, tag)
    own = Image("trainer", tag, 0, ())
    try:
        code = "import humanize, os, tensorflow; print(humanize.intcomma(1234567), os.getuid())"
        assert own.python(code, options=("--env", "TF_CPP_MIN_LOG_LEVEL=3")).splitlines()[-1] == "1,234,567 65532"
        assert "one step of the run" in own.run("python", "-m", "trainer.cli", "--help").stdout
        # Nothing but the package was added, and nothing of ours was moved.
        before, after = (set(image.run("pip", "freeze", "--all").stdout.split()) for image in (trainer, own))
        assert after - before == {"humanize==4.17.0"}
        assert before <= after
    finally:
        run("docker", "rmi", tag, check=False)


def test_a_package_that_would_move_ours_is_refused_at_the_build(trainer: Image, tmp_path: Path) -> None:
    dockerfile = f"FROM {trainer.reference}\nUSER 0\nRUN pip install 'numpy<2'\nUSER 65532:65532\n"
    done = build(dockerfile, trainer, tmp_path, "localhost/trainyard-test/own:2", check=False)
    assert done.returncode != 0
    assert "ResolutionImpossible" in done.stdout + done.stderr or "conflict" in done.stdout + done.stderr
