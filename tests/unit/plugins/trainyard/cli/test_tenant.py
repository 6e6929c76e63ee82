"""`trainyard tenant add`: a file that is in order, or none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.plugins.trainyard.cli.conftest import Server, Trainyard
from trainyard.cli.tenant_file import NewTenant, render, write
from trainyard.errors import ConfigError
from trainyard.settings import load

SAMPLES = Path(__file__).parents[5] / "config"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    shutil.copytree(SAMPLES, tmp_path / "config")
    return tmp_path / "config"


def test_it_writes_a_file_that_is_in_order(server: Server, trainyard: Trainyard, config: Path) -> None:
    words = [
        "--owner",
        "Speech: team #1",
        "--contact",
        "#speech",
        "--slots",
        "8",
        "--gpus",
        "2",
        "--member",
        "frank",
        "--member",
        "gina:viewer",
    ]
    done = trainyard("tenant", "add", "speech", *words, "--config", str(config))
    assert (done.code, str(config / "tenants" / "speech.yaml") in done.out) == (0, True), done.err
    made = load(config, environ={}).tenants["speech"]
    assert (made.owner, made.contact, made.slots, made.gpus, made.state) == ("Speech: team #1", "#speech", 8, 2, "active")
    assert made.members == {"frank": "user", "gina": "viewer"}
    assert made.slot.memory == "2Gi"
    assert (config / "tenants" / "speech.yaml").read_text().startswith("# yaml-language-server: $schema=../schemas/tenant.schema.json\n")


def test_a_name_is_enough(server: Server, trainyard: Trainyard, config: Path) -> None:
    done = trainyard("tenant", "add", "speech", "--config", str(config), "--json")
    assert done.lines[0] == {"tenant": "speech", "file": str(config / "tenants" / "speech.yaml")}
    assert load(config, environ={}).tenants["speech"].slots >= 3, "enough for the smallest gang"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["vision"], "exists already: edit it"),
        (["platform"], "the name 'platform' is the platform's own"),
        (["vision-models"], "ends in -models"),
        (["Speech"], "use 3–30 lower-case letters"),
        (["../speech"], "is no tenant's name"),
        (["../../speech"], "is no tenant's name"),
        (["/tmp/speech"], "is no tenant's name"),
        (["speech", "--slots", "0"], "slots = 0: must be 1 or more"),
        (["speech", "--memory", "1G"], "did you mean 1Gi?"),
        (["speech", "--member", "alice:viewer"], "members.alice = \"viewer\": is 'user' in tenants/vision.yaml, and a login has one role"),
        (["speech", "--member", "frank:admin"], "must be 'viewer' or 'user'"),
        (["speech", "--member", "frank", "--member", "frank:viewer"], "frank is given twice"),
        (["speech", "--owner", ""], "owner"),
    ],
)
def test_what_would_be_wrong_is_not_left(server: Server, trainyard: Trainyard, config: Path, words: list[str], told: str) -> None:
    before = {path: path.read_bytes() for path in config.parent.rglob("*") if path.is_file()}
    done = trainyard("tenant", "add", *words, "--config", str(config))
    assert done.code == 2, done.out
    assert told in done.err
    after = {path: path.read_bytes() for path in config.parent.rglob("*") if path.is_file()}
    assert {path for path in after if path not in before} <= {path for path in after if config not in path.parents}
    assert all(after[path] == content for path, content in before.items())


def test_what_is_wrong_with_others_files_is_theirs(config: Path) -> None:
    (config / "tenants" / "broken.yaml").write_text("slots: [")
    assert write(config, NewTenant("speech", "x", "y")).is_file()


@settings(max_examples=40, deadline=None)
@given(st.text(min_size=1), st.text(min_size=1))
def test_no_owner_can_write_anything_but_an_owner(owner: str, contact: str) -> None:
    import yaml

    document = yaml.safe_load(render(NewTenant("speech", owner, contact), schema=False))
    assert (document["owner"], document["contact"]) == (owner, contact)
    assert set(document) == {"owner", "contact", "state", "slots", "slot", "gpus", "members", "retention"}


def test_a_folder_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is this the configuration's folder"):
        write(tmp_path, NewTenant("speech", "x", "y"))
