"""The S3 server's files and flags, without starting it."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from local.stack import ports
from local.stack.s3 import S3
from local.stack.state import State


@pytest.fixture
def s3(tmp_path: Path) -> S3:
    one = S3(State.at(tmp_path), ports.plan(20000), Path("/weed"))
    one.prepare()
    return one


def test_the_admin_identity_is_made_once_and_follows_the_port(s3: S3) -> None:
    first = json.loads(s3.admin_file.read_text())
    moved = S3(s3.state, ports.plan(21000), Path("/weed"))
    moved.prepare()
    second = json.loads(s3.admin_file.read_text())
    assert first["endpoint"] == "http://127.0.0.1:20001"
    assert second == {**first, "endpoint": "http://127.0.0.1:21001"}
    served = json.loads((s3.state.s3 / "identities.json").read_text())["identities"]
    assert served[0]["credentials"] == [{"accessKey": first["access_key"], "secretKey": first["secret_key"]}]


def test_secrets_are_the_users_alone(s3: S3) -> None:
    for path in (s3.admin_file, s3.state.s3 / "identities.json"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_every_port_is_on_loopback_and_ours(s3: S3) -> None:
    flags = list(s3.component({}).program)
    assert "-ip.bind=127.0.0.1" in flags
    given = {word.split("=")[1] for word in flags if ".port" in word}
    assert given == {str(port) for name, port in s3.ports.items() if name.startswith("s3")} | {"0"}


def test_it_tells_its_makers_nothing(s3: S3) -> None:
    assert "-master.telemetry=false" in list(s3.component({}).program)


def test_a_killed_servers_sockets_are_removed_and_no_others(s3: S3) -> None:
    own, other = (Path(f"/tmp/seaweedfs-filer-{port}.sock") for port in (s3.ports["s3_filer"], 1))
    try:
        for path in (own, other):
            path.touch()
        s3.remove_sockets()
        assert not own.exists()
        assert other.exists()
    finally:
        other.unlink(missing_ok=True)


def test_nothing_answers(s3: S3) -> None:
    assert not s3.ready()


def test_only_its_s3_port_is_ever_elsewhere(tmp_path: Path) -> None:
    flags = list(S3(State.at(tmp_path), ports.plan(20000), Path("/weed"), "10.0.0.7").component({}).program)
    assert {"-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3.ip.bind=10.0.0.7"} <= set(flags)
