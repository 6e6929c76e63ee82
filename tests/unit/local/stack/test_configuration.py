"""The configuration is read before anything is started."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from local.stack import configuration, ports
from local.stack import site as sites
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
    assert "mnist-cnn" in configuration.read(CHECKOUT / "config", "embedded", os.environ).pipelines


def test_problems_are_told_with_their_file(broken: Path) -> None:
    with pytest.raises(StackError, match=r"mnist-cnn\.yaml") as error:
        configuration.read(broken, "embedded", os.environ)
    assert "Traceback" not in str(error.value)


def test_a_start_with_a_broken_one_starts_nothing(broken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(*_: object) -> Path:
        raise AssertionError("it went on")

    monkeypatch.setattr("local.stack.starter.kube_binary", compiled)
    monkeypatch.setattr("local.stack.supervisor.shim.prctl", lambda *_: None)  # a subreaper is not for the test process
    monkeypatch.setattr("local.stack.ports.check_free", lambda *_: None)
    monkeypatch.setattr("local.stack.starter.check_space", lambda _: None)
    starter = Starter(State.at(tmp_path / "state"), Options(ports.plan(19000), config=broken), Reporter())
    with pytest.raises(StackError, match=r"mnist-cnn\.yaml"):
        starter._bring_up()
    assert starter.supervisor.names() == []


def test_another_cluster_starts_none_of_ours(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("{}")
    found = configuration.Found([], str(kubeconfig), "managed", "http://10.0.0.7:8333")
    site = sites.of("ours", found, {})
    assert (site.kubeconfig, site.s3_host, site.s3_port) == (str(kubeconfig), "10.0.0.7", 8333)
    used = {name for name in ports.NAMES if site.uses_port(name)}
    assert used == {name for name in ports.NAMES if name == "airflow" or name.startswith("s3")}
    keys = tmp_path / "keys.json"
    keys.write_text("{}")
    external = configuration.Found([], str(kubeconfig), "external", "https://s3.example.org")
    site = sites.of("ours", external, {"TRAINYARD_S3_CREDENTIALS": str(keys)})
    assert (site.s3_is_ours, site.s3_credentials) == (False, str(keys))
    assert {name for name in ports.NAMES if site.uses_port(name)} == {"airflow"}


def test_sync_has_its_own_kubeconfig_where_the_profile_or_a_variable_names_one(tmp_path: Path) -> None:
    run, profiles, variables = (tmp_path / name for name in ("run", "profiles", "variables"))
    for file in (run, profiles, variables):
        file.write_text("{}")
    found = configuration.Found([], str(run), "managed", "http://10.0.0.7:8333")
    assert sites.of("ours", found, {}).sync_kubeconfig == str(run)
    assert sites.of("ours", replace(found, sync_kubeconfig=str(profiles)), {}).sync_kubeconfig == str(profiles)
    named = {"TRAINYARD_SYNC_KUBECONFIG": str(variables)}
    assert sites.of("ours", replace(found, sync_kubeconfig=str(profiles)), named).sync_kubeconfig == str(variables)
    with pytest.raises(StackError, match="nowhere does not exist"):
        sites.of("ours", replace(found, sync_kubeconfig="/nowhere"), {})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"kubeconfig": None}, "clusters/ours.yaml: `kubeconfig` is empty"),
        ({"kubeconfig": "/nowhere/kubeconfig"}, "the kubeconfig /nowhere/kubeconfig does not exist"),
        ({"s3_endpoint": None}, "s3.endpoint is to be http://ADDRESS:PORT"),
        ({"s3_endpoint": "http://127.0.0.1:8333"}, "not loopback"),
        ({"s3_endpoint": "http://10.0.0.7"}, "s3.endpoint is to be http://ADDRESS:PORT"),
        ({"s3_mode": "external"}, "TRAINYARD_S3_CREDENTIALS"),
    ],
)
def test_a_profile_that_cannot_be_used_says_what_to_write(tmp_path: Path, changes: dict[str, str | None], says: str) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("{}")
    values: dict[str, Any] = {"pipelines": [], "kubeconfig": str(kubeconfig), "s3_mode": "managed", "s3_endpoint": "http://10.0.0.7:8333"}
    with pytest.raises(StackError) as error:
        sites.of("ours", configuration.Found(**values | changes), {})
    assert says in str(error.value)


def test_an_address_of_another_machine_is_told() -> None:
    with pytest.raises(StackError, match=r"s3 is to listen on 192\.0\.2\.7, which is no address of this machine"):
        ports.check_free({"s3": 18081}, {"s3": "192.0.2.7"})
