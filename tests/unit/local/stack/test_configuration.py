"""The configuration is read before anything is started."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from local.stack import configuration, ports
from local.stack.events import Reporter, StackError
from local.stack.starter import Options, Starter
from local.stack.state import CHECKOUT, State


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    folder = tmp_path / "config"
    shutil.copytree(CHECKOUT / "config", folder)
    (folder / "pipelines" / "mnist-cnn.yaml").write_text("nonsense: 1\n")
    return folder


def test_the_checkouts_own_is_in_order() -> None:
    assert "mnist-cnn" in configuration.pipelines(CHECKOUT / "config", "embedded", os.environ)


def test_problems_are_told_with_their_file(broken: Path) -> None:
    with pytest.raises(StackError, match=r"mnist-cnn\.yaml") as error:
        configuration.pipelines(broken, "embedded", os.environ)
    assert "Traceback" not in str(error.value)


def test_a_start_with_a_broken_one_starts_nothing(broken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(*_: object) -> Path:
        raise AssertionError("it went on")

    monkeypatch.setattr("local.stack.starter.kube_binary", compiled)
    monkeypatch.setattr("local.stack.supervisor.shim.prctl", lambda *_: None)  # a subreaper is not for the test process
    monkeypatch.setattr("local.stack.ports.check_free", lambda _: None)
    monkeypatch.setattr("local.stack.starter.check_space", lambda _: None)
    starter = Starter(State.at(tmp_path / "state"), Options(ports.plan(19000), config=broken), Reporter())
    with pytest.raises(StackError, match=r"mnist-cnn\.yaml"):
        starter._bring_up()
    assert starter.supervisor.names() == []
