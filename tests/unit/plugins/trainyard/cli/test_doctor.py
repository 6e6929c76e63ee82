"""``doctor --cluster``: which configuration, kubeconfig and keys it takes, and how it says what it saw. What it sees is tests/cluster's."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.plugins.trainyard.cli.conftest import Trainyard
from trainyard.upkeep.examining import examination
from trainyard.upkeep.examining.finding import Finding, absent, doubtful, well, wrong
from trainyard.upkeep.examining.patient import Patient

CONFIG = Path(__file__).parents[5] / "config"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration with a profile ``site`` whose cluster and S3 server are not there."""
    for name in [name for name in os.environ if name.startswith("TRAINYARD_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "config"
    shutil.copytree(CONFIG, folder)
    profile = yaml.safe_load((folder / "clusters" / "embedded.yaml").read_text())
    profile["kubeconfig"] = str(tmp_path / "kubeconfig")
    profile["s3"]["endpoint"] = "http://127.0.0.1:1"
    (folder / "clusters" / "site.yaml").write_text(yaml.safe_dump(profile))
    monkeypatch.setenv("TRAINYARD_CONFIG", str(folder))
    monkeypatch.setenv("TRAINYARD_STATE", str(tmp_path / "state"))
    return folder


def platform(state: Path, **environment: str) -> None:
    """A platform that says what it tells its processes."""
    (state / "kube").mkdir(parents=True)
    (state / "kube" / "admin.kubeconfig").touch()
    (state / "state.json").write_text(json.dumps({"phase": "up", "environment": environment}))


@pytest.fixture
def patients(monkeypatch: pytest.MonkeyPatch) -> list[Patient]:
    """Who is examined; every check but one is left out, and that one says a finding of each kind."""
    seen: list[Patient] = []

    def run(patient: Patient) -> Iterator[Finding]:
        seen.append(patient)
        yield from (well("it is"), doubtful("is it?", "look"), absent("not here"))

    monkeypatch.setattr(examination, "CHECKS", (examination.Check("one", run),))
    return seen


def test_nothing_that_is_named_is_there(config: Path, trainyard: Trainyard, tmp_path: Path) -> None:
    done = trainyard("doctor", "--cluster", "site", "--json")
    assert done.code == 1, done.err
    told = {line["check"]: line for line in done.lines}
    assert list(told) == [check.name for check in examination.CHECKS]
    assert (told["api"]["state"], told["s3"]["state"]) == ("failed", "failed")
    assert f"{tmp_path / 'kubeconfig'}: there is no such file" in told["api"]["saw"]
    assert told["s3"]["todo"]
    assert {line["state"] for name, line in told.items() if name not in ("api", "s3")} == {"not_tried"}
    assert "left behind" not in done.err


def test_a_line_each_with_the_way_out_below(config: Path, trainyard: Trainyard, patients: list[Patient]) -> None:
    done = trainyard("doctor", "--cluster", "site")
    assert done.code == 0
    lines = [line.rstrip() for line in done.out.splitlines()]
    marks = [line.split()[0] for line in lines[:2]]
    assert (marks, lines[0].endswith("it is"), lines[1].endswith("warning: is it?")) == (["✓", "!"], True, True)
    assert lines[2].strip() == "→ look"
    assert lines[2].index("→") == lines[1].index("warning")
    assert lines[3].endswith("not applicable: not here")
    assert lines[4] == "0 wrong, 1 doubtful, 1 well, 0 not tried"


def test_who_examines_and_who_is_asked_about(
    config: Path, trainyard: Trainyard, patients: list[Patient], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainyard("doctor", "--cluster", "site")
    trainyard("doctor", "--cluster", "site", "--kubeconfig", "/admins/own")
    monkeypatch.setenv("TRAINYARD_KUBECONFIG", "/airflows/own")
    trainyard("doctor", "--cluster", "site", "--kubeconfig", "/admins/own")
    used = [(patient.settings.cluster.kubeconfig, patient.airflow_kubeconfig) for patient in patients]
    own = str(tmp_path / "kubeconfig")
    assert used == [(own, own), ("/admins/own", own), ("/admins/own", "/airflows/own")]


def test_a_platform_of_this_machine_says_where_everything_is(
    config: Path, trainyard: Trainyard, patients: list[Patient], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("TRAINYARD_KUBECONFIG", "TRAINYARD_S3_ENDPOINT", "TRAINYARD_CLUSTER")
    for name in names:
        monkeypatch.setenv(name, "")  # so that what the command sets goes with the test
        monkeypatch.delenv(name)
    told: dict[str, Any] = {"TRAINYARD_CLUSTER": "embedded", "TRAINYARD_KUBECONFIG": "/var/airflow", "TRAINYARD_S3_ENDPOINT": "http://s3:1"}
    platform(tmp_path / "state", **told)
    trainyard("doctor", "--cluster", "site")
    trainyard("doctor", "--cluster", "embedded")
    other, embedded = patients
    assert other.settings.cluster.s3.endpoint == "http://127.0.0.1:1"
    assert embedded.settings.cluster.s3.endpoint == "http://s3:1"
    assert embedded.airflow_kubeconfig == "/var/airflow"
    assert embedded.settings.cluster.kubeconfig == str(tmp_path / "state" / "kube" / "admin.kubeconfig")


def test_what_is_left_behind_is_no_good_end(config: Path, trainyard: Trainyard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "CHECKS", ())
    monkeypatch.setattr(Patient, "close", lambda self: ["namespace x is still there"])
    done = trainyard("doctor", "--cluster", "site")
    assert (done.code, "left behind: namespace x is still there" in done.err) == (1, True)


def test_signals_are_ours_for_the_examination_only(config: Path, trainyard: Trainyard, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    def run(_: Patient) -> Iterator[Finding]:
        os.kill(os.getpid(), signal.SIGTERM)
        yield wrong("not reached", "")

    closed: list[Patient] = []

    def close(self: Patient) -> list[str]:
        closed.append(self)
        return []

    monkeypatch.setattr(Patient, "close", close)
    monkeypatch.setattr(examination, "CHECKS", (examination.Check("one", run),))
    done = trainyard("doctor", "--cluster", "site")
    assert (done.code, len(closed), done.out) == (143, 1, "")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--kubeconfig", "/x"], "--kubeconfig is for --cluster NAME"),
        (["--cluster", "sight"], "config/clusters/sight.yaml: does not exist"),
    ],
)
def test_wrong_words(config: Path, trainyard: Trainyard, words: list[str], text: str) -> None:
    done = trainyard("doctor", *words)
    assert (done.code, text in done.err) == (2, True), done.err
