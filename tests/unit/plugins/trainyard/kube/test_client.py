"""Where the cluster is looked for, and how long a silent one is asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kubernetes import client as k8s
from urllib3.exceptions import ProtocolError

from trainyard.errors import ConfigError, UnavailableError
from trainyard.kube import client
from trainyard.kube.patience import Patience


def kubeconfig(path: Path, server: str) -> Path:
    document = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}], "users": [{"name": "u", "user": {"token": "t"}}],
    }  # fmt: skip
    path.write_text(json.dumps(document))
    return path


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (client.KUBECONFIG, "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)


def mounted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    (folder / "token").write_text("secret\n")
    monkeypatch.setenv("TRAINYARD_MOUNT_KUBE_API_ACCESS", str(folder))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")


def test_the_variable_is_first_then_the_mounted_account_then_the_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = kubeconfig(tmp_path / "profile", "https://profile:1")
    assert client.configuration(str(profile)).host == "https://profile:1"
    mounted(tmp_path / "account", monkeypatch)
    found = client.configuration(str(profile))
    assert (found.host, found.api_key) == ("https://10.0.0.1:6443", {"authorization": "Bearer secret"})
    assert found.ssl_ca_cert == str(tmp_path / "account" / "ca.crt")
    monkeypatch.setenv(client.KUBECONFIG, str(kubeconfig(tmp_path / "variable", "https://variable:1")))
    assert client.configuration(str(profile)).host == "https://variable:1"


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="no TRAINYARD_KUBECONFIG, no kubeconfig in the cluster profile, and this is no pod"):
        client.configuration()
    monkeypatch.setenv(client.KUBECONFIG, str(tmp_path / "absent"))
    with pytest.raises(ConfigError, match=r"TRAINYARD_KUBECONFIG: .*absent: there is no such file"):
        client.configuration()


class Answers:
    """Calls that fail as told, then work."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self, **_: object) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def test_silence_is_asked_again_and_answers_are_not() -> None:
    quick = Patience(5, first=0.001)
    silent = Answers(ProtocolError("reset"), k8s.ApiException(status=503), ConnectionRefusedError())
    assert client.ask(silent, patience=quick) == "done"
    assert silent.calls == 4
    refused = Answers(k8s.ApiException(status=403))
    with pytest.raises(k8s.ApiException):
        client.ask(refused, patience=quick)
    assert refused.calls == 1


def test_patience_ends() -> None:
    with pytest.raises(UnavailableError, match=r"has not answered for 0 s: .*refused"):
        client.ask(Answers(*[ConnectionRefusedError("refused")] * 1000), patience=Patience(0.05, first=0.01))
