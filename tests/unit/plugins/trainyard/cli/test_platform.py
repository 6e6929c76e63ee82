"""Login, configuration and the platform of one's own: what is kept, what is refused, what is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from trainyard.cli import places, session
from trainyard.errors import ConfigError, RefusedError

if TYPE_CHECKING:
    from conftest import Server, Trainyard

CHECKOUT = Path(__file__).resolve().parents[5]


def test_help_is_quick_and_loads_nothing_heavy() -> None:
    """What a command does not need, it does not wait for."""
    heavy = ["airflow", "kubernetes", "boto3", "tensorflow", "httpx", "pydantic", "yaml", "rich", "fastapi"]
    code = f"import sys, trainyard.cli.main; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(CHECKOUT / "plugins")}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_the_guide_names_every_command_and_every_address(trainyard: Trainyard) -> None:
    from trainyard.api.application import router
    from trainyard.cli.main import app

    guide = (CHECKOUT / "docs" / "guides" / "command-line.md").read_text()
    names = [command.name for command in app.registered_commands]
    assert len(names) == 17
    for name in names:
        assert f"`{name}" in guide, name
        assert trainyard(str(name), "--help").code == 0
    for route in router.routes:
        path = getattr(route, "path", "")
        assert f" {path}`" in guide or f"`{path}`" in guide, path


def test_login_keeps_a_token_that_only_the_owner_reads(server: Server, trainyard: Trainyard, monkeypatch: pytest.MonkeyPatch) -> None:
    session.forget()
    monkeypatch.setattr("sys.stdin", __import__("io").StringIO("right\n"))
    done = trainyard("login", server.url, "--user", "alice", "--password-stdin", "--json")
    assert done.code == 0, done.err
    assert done.lines == [{"url": server.url, "user": "alice"}]
    path = session.session_file()
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text()) == {"url": server.url, "token": "good", "user": "alice"}
    assert "right" not in path.read_text()
    assert trainyard("logout").code == 0
    assert not path.exists()
    assert trainyard("status").err.startswith("trainyard: not logged in")


def test_login_by_token_asks_who_it_is(server: Server, trainyard: Trainyard) -> None:
    assert trainyard("login", server.url, "--token", "good").code == 0
    assert session.load().user == "alice"
    done = trainyard("login", server.url, "--token", "bad")
    assert (done.code, done.err.startswith(f"trainyard: {server.url} does not accept this token")) == (4, True)
    assert f"`trainyard login {server.url}`" in done.err
    assert session.load().token == "good"


@pytest.mark.parametrize(
    ("status", "says"), [(405, "does not answer like an Airflow"), (501, "does not answer like an Airflow"), (404, "is it a Trainyard?")]
)
def test_a_login_to_what_is_no_airflow_says_so(server: Server, trainyard: Trainyard, status: int, says: str) -> None:
    server.answers["GET", "/trainyard/me"] = (status, b"<html>no</html>")
    done = trainyard("login", server.url, "--token", "good")
    assert (done.code, done.err.count("\n"), server.url in done.err, says in done.err) == (2, 1, True, True)


def test_a_token_that_cannot_be_one_is_refused_by_name(server: Server, trainyard: Trainyard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", __import__("io").StringIO("ä\n"))
    done = trainyard("login", server.url, "--token", "-")
    assert (done.code, done.err.count("\n"), "the token" in done.err, "ASCII" in done.err) == (2, 1, True, True)
    assert session.load().token == "good"
    assert server.asked == []


def test_a_wrong_password_is_one_line(server: Server, trainyard: Trainyard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", __import__("io").StringIO("wrong\n"))
    done = trainyard("login", server.url, "--user", "alice", "--password-stdin")
    assert (done.code, done.err) == (4, f"trainyard: {server.url} does not accept the user `alice` with this password\n")


def test_a_login_that_has_ended_says_what_to_do(server: Server, trainyard: Trainyard) -> None:
    server.token = "another"
    done = trainyard("status")
    assert (done.code, f"`trainyard login {server.url}`" in done.err) == (4, True)


def test_a_server_that_is_not_there_is_exit_code_3(server: Server, trainyard: Trainyard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINYARD_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("TRAINYARD_TOKEN", "x")
    done = trainyard("status")
    assert (done.code, done.err.count("\n")) == (3, 1)
    assert "cannot reach http://127.0.0.1:9" in done.err


def test_something_else_at_that_address_is_told(server: Server, trainyard: Trainyard) -> None:
    server.answers["GET", "/trainyard/runs"] = (200, b"<html>a proxy's login page</html>")
    done = trainyard("status")
    assert (done.code, "answered no JSON" in done.err) == (3, True)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://a.example:8080/", "http://a.example:8080"),
        (" https://a.example/airflow/ ", "https://a.example/airflow"),
        ("127.0.0.1:8080", "http://127.0.0.1:8080"),
    ],
)
def test_addresses_are_taken_as_people_write_them(given: str, url: str) -> None:
    assert session.clean_url(given) == url


@pytest.mark.parametrize("given", ["", "ftp://a", "http://", "http://a:99999999", "http://user:pass@a", "http://a?x=1"])
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(ConfigError):
        session.clean_url(given)


def test_a_token_over_an_open_network_is_warned_of() -> None:
    assert session.Session("http://a.example", "t").in_clear
    assert not session.Session("https://a.example", "t").in_clear
    assert not session.Session("http://127.0.0.1:8080", "t").in_clear


def test_the_environment_wins_over_the_file_and_must_be_whole(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINYARD_URL", "http://ci.example")
    with pytest.raises(ConfigError, match="TRAINYARD_TOKEN is not"):
        session.load()
    monkeypatch.setenv("TRAINYARD_TOKEN", "ci")
    assert session.load() == session.Session("http://ci.example", "ci")


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"url": "http://a"}', "\x00"])
def test_a_damaged_session_file_is_told(server: Server, content: str) -> None:
    session.session_file().write_text(content)
    with pytest.raises(ConfigError, match="log in again"):
        session.load()
    session.forget()
    with pytest.raises(RefusedError):
        session.load()


# ------------------------------------------------------------------------------------------------------------ configuration
def test_a_new_repository_is_in_order(server: Server, trainyard: Trainyard, tmp_path: Path) -> None:
    from trainyard.cli import wheel
    from trainyard.settings import load

    done = trainyard("init", "mine", "--tenant", "reading", "--json")
    assert done.code == 0, done.err
    assert trainyard("validate", "mine").code == 0
    assert trainyard("validate", "mine/config").code == 0
    settings = load(tmp_path / "work" / "mine" / "config")
    (pipeline,) = settings.pipelines_of("reading")
    package = wheel.find(str(pipeline.model.package), [tmp_path / "work" / "mine"])
    wheel.check_build(package, pipeline.model.build)
    assert wheel.build(package).files == 2
    assert set(done.lines[0]["files"]) == {str(p.relative_to("mine")) for p in Path("mine").rglob("*") if p.is_file()}


@pytest.mark.parametrize("tenant", ["platform", "A", "ab", "-x-", "a" * 31, "foo-models"])
def test_a_tenant_that_cannot_be_one_makes_nothing(server: Server, trainyard: Trainyard, tenant: str) -> None:
    assert trainyard("init", "mine", f"--tenant={tenant}").code == 2
    assert not Path("mine").exists()


def test_a_new_repository_says_what_to_do_in_the_order_that_works(server: Server, trainyard: Trainyard) -> None:
    done = trainyard("init", "mine")
    assert f"next: `{CHECKOUT / 'trainyard'} validate mine`" in done.out
    steps = ["alias trainyard=", "export TRAINYARD_CONFIG", "trainyard up", "trainyard run digits ", "trainyard run digits --local"]
    text = Path("mine/README.md").read_text().replace("trainyard run digits --local", "LOCAL")
    places_of = [text.index(step.replace("trainyard run digits --local", "LOCAL")) for step in steps]
    assert places_of == sorted(places_of)  # the shards for `--local` are made by a run


def test_a_folder_that_holds_something_is_left_alone(server: Server, trainyard: Trainyard) -> None:
    Path("mine").mkdir()
    Path("mine/file").write_text("x")
    assert trainyard("init", "mine").code == 2
    assert [p.name for p in Path("mine").iterdir()] == ["file"]


def test_a_place_that_cannot_be_written_is_one_line(server: Server, trainyard: Trainyard) -> None:
    Path("file").write_text("x")
    done = trainyard("init", "file/below")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert done.err.startswith("trainyard: file/below")
    assert "name another place" in done.err


def test_validate_names_every_problem(server: Server, trainyard: Trainyard) -> None:
    trainyard("init", "mine")
    pipeline = Path("mine/config/pipelines/digits.yaml")
    pipeline.write_text(pipeline.read_text().replace("dataset: digits", "dataset: digit").replace("schedule: null", "shedule: null"))
    done = trainyard("validate", "mine", "--json")
    assert done.code == 2
    assert len(done.err.splitlines()) == len(done.lines[0]["problems"]) >= 1
    assert "shedule" in done.err
    assert "digits.yaml" in done.err


def test_without_a_configuration_the_way_out_is_told(server: Server, trainyard: Trainyard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "checkout", lambda: None)
    done = trainyard("validate")
    assert (done.code, "trainyard init" in done.err) == (2, True)


# --------------------------------------------------------------------------------------------------- the platform of one's own
@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A checkout whose ``local.stack`` says what it was asked, and does what ``script.json`` says."""
    package = tmp_path / "checkout" / "local" / "stack"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "__main__.py").write_text(
        "import json, pathlib, sys\n"
        "here = pathlib.Path(__file__).parent\n"
        "(here / 'asked.json').write_text(json.dumps(sys.argv[1:]))\n"
        "script = json.loads((here / 'script.json').read_text())\n"
        "for event in script['events']:\n    print(json.dumps(event), flush=True)\n"
        "if script['code']:\n    print('port 1 is taken: choose another', file=sys.stderr)\n"
        "sys.exit(script['code'])\n"
    )
    monkeypatch.setattr(places, "checkout", lambda: tmp_path / "checkout")
    return package


def _script(stack: Path, code: int, *events: dict[str, Any]) -> None:
    (stack / "script.json").write_text(json.dumps({"code": code, "events": events}))


def test_up_starts_the_platform_and_logs_in(server: Server, trainyard: Trainyard, stack: Path, tmp_path: Path) -> None:
    session.forget()
    state = tmp_path / "state"
    state.mkdir()
    passwords = tmp_path / "passwords.json"
    passwords.write_text(json.dumps({"admin": "right"}))
    airflow = {"url": server.url, "admin_user": "admin", "passwords_file": str(passwords)}
    (state / "state.json").write_text(json.dumps({"phase": "up", "airflow": airflow}))
    events = [
        {"event": "phase", "name": "kubernetes", "state": "start", "detail": "compiling"},
        {"event": "progress", "name": "kubernetes", "done": 3, "total": 9, "detail": "k8s.io/api"},
        {"event": "phase", "name": "kubernetes", "state": "done", "seconds": 3.5},
        {"event": "note", "message": "a remark"},
    ]
    _script(stack, 0, *events)
    options = ["--cluster", "ours", "--port-base", "19000", "--port", "s3=8333", "--port", "airflow=9090"]
    done = trainyard("up", "--state", str(state), *options)
    assert done.code == 0, done.err
    assert json.loads((stack / "asked.json").read_text()) == ["up", "--json", "--state", str(state), *options]
    assert ("✓ kubernetes  3.5 s" in done.out, server.url in done.out, "a remark" in done.err) == (True, True, True)
    assert (session.load().user, session.load().token) == ("admin", "good")
    assert trainyard("up", "--state", str(state), "--json").lines == events
    assert trainyard("login", "--token", "good").code == 2  # no checkout's own platform is up in its var/


def test_a_platform_that_does_not_come_up_is_exit_code_1(server: Server, trainyard: Trainyard, stack: Path, tmp_path: Path) -> None:
    _script(stack, 1, {"event": "error", "message": "port 1 is taken"})
    session.forget()
    assert trainyard("up", "--state", str(tmp_path)).code == 1
    assert not session.session_file().exists()
    _script(stack, 0)
    assert trainyard("down", "--state", str(tmp_path)).code == 0
    assert json.loads((stack / "asked.json").read_text())[0] == "down"


@pytest.mark.parametrize("json_too", [[], ["--json"]])
def test_an_error_of_the_stack_is_said_once_as_the_commands_own(
    server: Server, trainyard: Trainyard, stack: Path, tmp_path: Path, json_too: list[str]
) -> None:
    """It is an event and a line on stderr; what is only the one or the other is said too."""
    _script(stack, 3, {"event": "error", "message": "being started by pid 7: wait for it"})
    said = trainyard("up", "--state", str(tmp_path), *json_too).err
    assert said == "trainyard: being started by pid 7: wait for it\ntrainyard: port 1 is taken: choose another\n"
    _script(stack, 3, {"event": "error", "message": "port 1 is taken: choose another"})
    assert trainyard("up", "--state", str(tmp_path), *json_too).err == "trainyard: port 1 is taken: choose another\n"


def test_a_platform_that_is_up_is_not_given_another_configuration(
    server: Server, trainyard: Trainyard, stack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _script(stack, 1)
    state = {"phase": "up", "starter": {"pid": os.getpid()}, "environment": {"TRAINYARD_CONFIG": str(tmp_path / "one")}}
    (tmp_path / "state.json").write_text(json.dumps(state))
    monkeypatch.setenv("TRAINYARD_CONFIG", str(tmp_path / "two"))
    done = trainyard("up", "--state", str(tmp_path))
    assert (done.code, f"it runs with {tmp_path / 'one'}: `trainyard down` first" in done.err) == (2, True)
    assert not (stack / "asked.json").exists()
    monkeypatch.setenv("TRAINYARD_CONFIG", f"{tmp_path}/two/../one/")
    assert trainyard("up", "--state", str(tmp_path)).code == 1  # the same folder: it is the stack's to say
    assert (stack / "asked.json").exists()
    monkeypatch.setenv("TRAINYARD_CONFIG", str(tmp_path / "two"))
    (tmp_path / "state.json").write_text(json.dumps(state | {"starter": {"pid": 2**22 + 1}}))
    assert trainyard("up", "--state", str(tmp_path)).code == 1  # its starter was killed: nothing is up


def test_up_without_a_checkout_says_so(server: Server, trainyard: Trainyard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "checkout", lambda: None)
    done = trainyard("up")
    assert (done.code, "needs the Trainyard repository" in done.err) == (2, True)


def test_sync_says_what_differs_and_restarts_airflow_only_when_it_is_up(
    server: Server, trainyard: Trainyard, stack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainyard.upkeep import sync as upkeep
    from trainyard.upkeep.changes import Change

    asked: list[tuple[str, bool]] = []

    def make_so(settings: Any, folder: Path, dry_run: bool) -> list[Change]:
        asked.append((str(settings.config_dir), dry_run))
        return [Change("pool tenant-vision", "update", "6 slots", restarts_airflow=True)]

    monkeypatch.setattr(upkeep, "sync", make_so)
    monkeypatch.setenv("TRAINYARD_S3_ENDPOINT", "set before")
    trainyard("init", "mine")
    state = tmp_path / "state.json"
    environment = {"TRAINYARD_CONFIG": str(Path("mine/config").resolve()), "TRAINYARD_S3_ENDPOINT": "http://127.0.0.1:1"}
    for phase, dry, restarted in (("starting", [], False), ("up", ["--dry-run"], False), ("up", [], True)):
        state.write_text(json.dumps({"phase": phase, "environment": environment}))
        (stack / "asked.json").unlink(missing_ok=True)
        _script(stack, 0)
        monkeypatch.delenv("TRAINYARD_CONFIG", raising=False)
        done = trainyard("sync", "--state", str(tmp_path), *dry, "--json")
        assert done.code == 0, done.err
        assert done.lines[0]["changes"] == [{"what": "pool tenant-vision", "action": "update", "detail": "6 slots"}]
        assert (stack / "asked.json").exists() == restarted, phase
    assert json.loads((stack / "asked.json").read_text())[:2] == ["restart", "--json"]
    assert asked == [(environment["TRAINYARD_CONFIG"], dry) for dry in (False, True, False)]


@pytest.mark.parametrize(("phase", "waits"), [("down", False), ("starting", True)])
def test_the_doctor_waits_only_for_what_is_on_its_way(
    server: Server, trainyard: Trainyard, stack: Path, tmp_path: Path, phase: str, waits: bool
) -> None:
    """``state.json`` says `up` for ever when the starter was killed; the stack's own status knows better."""
    (tmp_path / "state.json").write_text(json.dumps({"phase": "up"}))
    _script(stack, 0, {"phase": phase})
    done = trainyard("doctor", "--state", str(tmp_path))
    (line,) = [line for line in done.out.splitlines() if "✗ platform " in line]
    assert (done.code, f"{phase} in {tmp_path}" in line, "wait for it" in line) == (1, True, waits)
    assert ("`trainyard down`, then `trainyard up`" in line) == (not waits)


def test_the_doctor_names_what_is_not_well(server: Server, trainyard: Trainyard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "checkout", lambda: None)
    parts = ("metadatabase", "scheduler", "dag_processor", "triggerer")
    server.answers["GET", "/api/v2/monitor/health"] = (200, {part: {"status": "healthy"} for part in parts})
    server.answers["GET", "/trainyard/models"] = (200, {"models": []})
    monkeypatch.setattr("trainyard.cli.commands.doctor.LEAST_DISK", 1)
    done = trainyard("doctor")
    assert done.code == 0, done.out
    server.answers["GET", "/api/v2/monitor/health"] = (200, {"scheduler": {"status": "unhealthy"}})
    server.answers["GET", "/trainyard/models"] = (503, {"detail": "S3 at x does not answer"})
    done = trainyard("doctor")
    assert done.code == 1
    assert "✗ airflow        its scheduler is unhealthy" in done.out
    assert "S3 at x does not answer" in done.out
    session.forget()
    assert "✗ login          not logged in" in trainyard("doctor").out
