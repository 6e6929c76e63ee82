"""The app in a real Airflow server with two teams: nothing is replaced but S3's owner, and the command speaks to it as a person's would.

One server for the module: Airflow takes half a minute to start. No scheduler runs, so a triggered run stays queued, which is enough for
who may see it.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.s3 import S3Server, free_ports
from trainyard.contract import keys, names
from trainyard.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CHECKOUT = Path(__file__).resolve().parents[5]
START_DEADLINE_S = 240
VISION = "train_vision_digits-mlp"
TABULAR = "train_tabular_digits-own"
PASSWORDS = {"admin": "a-pass", "alice": "b-pass", "carol": "c-pass", "victor": "d-pass", "_upkeep": "e-pass"}
USERS = "admin:admin,alice:user:vision,carol:user:tabular,victor:viewer:vision,_upkeep:op:platform|tabular|vision"


@dataclass
class Airflow:
    """The server, and each person's command."""

    url: str
    prefix: str
    s3: S3Server
    folder: Path

    def store(self, tenant: str, *, models: bool = False) -> Store:
        bucket = (names.models_bucket if models else names.data_bucket)(self.prefix, tenant)
        return Store(bucket, self.s3.endpoint, self.s3.region, self.s3.access_key, self.s3.secret_key)

    def command(self, who: str, *words: str, text: str | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """``trainyard`` as ``who`` on a machine that has nothing of the platform."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "PYTHONPATH": str(CHECKOUT / "plugins"),
            "TRAINYARD_HOME": str(self.folder / who),
        }
        return subprocess.run(
            [sys.executable, "-m", "trainyard.cli.main", *words],
            env=environment, cwd=cwd or self.folder, input=text, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    def json(self, who: str, *words: str) -> Any:
        done = self.command(who, *words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def get(self, who: str, path: str) -> httpx.Response:
        token = json.loads((self.folder / who / "session.json").read_text())["token"]
        return httpx.get(self.url + path, headers={"Authorization": f"Bearer {token}"}, timeout=60)


def _environment(folder: Path, port: int, bundles: list[dict[str, Any]], s3: S3Server, config: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "TRAINYARD", "AWS"))}
    (folder / "passwords.json").write_text(json.dumps(PASSWORDS))
    (folder / "s3.json").write_text(json.dumps({"endpoint": s3.endpoint, "access_key": s3.access_key, "secret_key": s3.secret_key}))
    return kept | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(CHECKOUT / "plugins"),
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_urlsafe(64),
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__DAG_DISCOVERY_SAFE_MODE": "False",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__MULTI_TEAM": "True",
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(CHECKOUT / "plugins"),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(folder / "passwords.json"),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": USERS,
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
        "TRAINYARD_CONFIG": str(config),
        "TRAINYARD_S3_CREDENTIALS": str(folder / "s3.json"),
        "TRAINYARD_S3_ENDPOINT": s3.endpoint,
    }


_PREPARE = """
from airflow.utils.db import initdb
initdb()
from airflow.models.team import Team
from airflow.utils.session import create_session
with create_session() as session:
    from airflow.models.connection import Connection
    from airflow.models.pool import Pool
    from airflow.models.variable import Variable

    for name in ("vision", "tabular", "platform"):
        session.add(Team(name=name))
        session.flush()
        Pool.create_or_update_pool(f"tenant-{name}", 6, "", False, team_name=name, session=session)
    Pool.create_or_update_pool("platform-steps", 64, "", False, session=session)
    Pool.create_or_update_pool("platform-upkeep", 4, "", False, team_name="platform", session=session)
    session.add(Connection(conn_id="theirs", conn_type="http", password="of-tabular", team_name="tabular"))
    Variable.set("theirs", "of-tabular", team_name="tabular", session=session)
from airflow.cli.cli_parser import get_parser
arguments = get_parser().parse_args(["dags", "reserialize"])
arguments.func(arguments)
"""


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


@pytest.fixture(scope="module")
def airflow(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    """A server with the sample DAGs of two teams; everyone is logged in."""
    folder = tmp_path_factory.mktemp("airflow")
    prefix = f"r{secrets.token_hex(4)}"
    config = folder / "config"
    shutil.copytree(CHECKOUT / "config", config)
    profile = config / "clusters" / "embedded.yaml"
    profile.write_text(profile.read_text().replace("bucket_prefix: trainyard", f"bucket_prefix: {prefix}"))
    bundles = []
    for tenant in ("vision", "tabular"):
        (folder / "bundles" / tenant).mkdir(parents=True)
        shutil.copy(CHECKOUT / "dags" / "training_dag.py", folder / "bundles" / tenant)
        where = {"path": str(folder / "bundles" / tenant)}
        bundles.append(
            {"name": tenant, "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle", "kwargs": where, "team_name": tenant}
        )
        for bucket in (names.data_bucket(prefix, tenant), names.models_bucket(prefix, tenant)):
            s3_server.client().create_bucket(Bucket=bucket)
    platform = {"path": str(CHECKOUT / "dags" / "platform")}
    bundles.append(
        {
            "name": names.PLATFORM_TEAM,
            "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
            "kwargs": platform,
            "team_name": names.PLATFORM_TEAM,
        }
    )
    (port,) = free_ports(1)
    environment = _environment(folder, port, bundles, s3_server, config)
    done = subprocess.run([sys.executable, "-c", _PREPARE], env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    log = folder / "api-server.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, "-m", "airflow", "api-server"],
            env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=_die_with_parent,
        )  # fmt: skip
    try:
        made = Airflow(f"http://127.0.0.1:{port}", prefix, s3_server, folder)
        _wait(made.url, server, log)
        for who, password in PASSWORDS.items():
            done = made.command(who, "login", made.url, "--user", who, "--password-stdin", text=f"{password}\n")
            assert done.returncode == 0, done.stderr
        yield made
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _wait(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while True:
        try:
            if httpx.get(f"{url}/api/v2/version", timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        assert server.poll() is None, f"the server ended: {log.read_text()[-3000:]}"
        assert time.monotonic() < deadline, f"the server does not answer: {log.read_text()[-3000:]}"
        time.sleep(0.5)


@pytest.fixture(scope="module")
def run(airflow: Airflow) -> dict[str, str]:
    """A run of vision's, triggered by alice's command, with a log, a model and a progress that a trainer would have left."""
    started = airflow.json("alice", "run", "digits-mlp", "--version", "1.0.0", "--set", "epochs=3", "--no-follow")
    store, name = airflow.store("vision"), started["run"]
    store.put(f"{keys.logs(name, 'chief-0')}20260301T100000Z-p/00000000.log", "step 1 loss 0.5 ✓\n".encode())
    store.put_json(keys.progress(name), {"step": 1, "loss": 0.5})
    models, data = airflow.store("vision", models=True), b"graph"
    folder = keys.model_version("digits-mlp", 1)
    models.put(f"{folder}saved_model.pb", data)
    file = {"key": f"{folder}saved_model.pb", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    models.put_json(keys.model_marker("digits-mlp", 1), {"version": 1, "files": [file], "values": {}, "ended": "2026-03-01T10:00:00+00:00"})
    champion = {"model": "digits-mlp", "version": 1, "run": name, "dataset_version": "1.0.0", "metrics": {"accuracy": 0.97}}
    models.put_json(keys.champion("digits-mlp"), champion)
    return dict(started)


def test_the_member_of_the_team_sees_everything_of_the_run(airflow: Airflow, run: dict[str, str]) -> None:
    shown = airflow.json("alice", "status", run["run"])
    assert (shown["dag_id"], shown["run_id"], shown["state"]) == (VISION, run["run_id"], "queued")
    assert (shown["dataset_version"], shown["requested_by"], shown["progress"]["step"]) == ("1.0.0", "alice", 1)
    assert shown["steps"][0]["step"] == "check"
    assert {"prepare", "shard", "train", "export", "clean_up"} <= {step["step"] for step in shown["steps"]}
    assert airflow.command("alice", "logs", run["run"], "chief-0").stdout == "step 1 loss 0.5 ✓\n"
    assert airflow.command("victor", "logs", "digits-mlp").stdout == "[chief-0] step 1 loss 0.5 ✓\n"
    assert "0.97" in airflow.command("victor", "models").stdout
    assert [r["run"] for r in airflow.json("alice", "status")["runs"]] == [run["run"]]


def test_a_model_is_brought_here_whole(airflow: Airflow, run: dict[str, str], tmp_path: Path) -> None:
    got = airflow.json("victor", "model", "get", "digits-mlp", "-o", str(tmp_path / "model"))
    assert (got["version"], got["champion"], got["run"]) == (1, True, run["run"])
    assert (tmp_path / "model" / "saved_model.pb").read_bytes() == b"graph"


def test_another_team_gets_nothing_of_it(airflow: Airflow, run: dict[str, str]) -> None:
    run_id = run["run_id"].replace("+", "%2B").replace(":", "%3A")
    paths = [f"/runs/{VISION}/{run_id}", f"/runs/{VISION}/{run_id}/logs", f"/runs/{VISION}/{run_id}/logs/chief-0"]
    paths += [f"/models/{VISION}", f"/models/{VISION}/1", f"/models/{VISION}/champion"]
    for path in paths:
        assert airflow.get("carol", f"/trainyard{path}").status_code == 403, path
        assert airflow.get("alice", f"/trainyard{path}").status_code == 200, path
    digest = hashlib.sha256(b"x").hexdigest()
    token = json.loads((airflow.folder / "carol" / "session.json").read_text())["token"]
    for path in (f"/trainyard/packages/{VISION}?sha256={digest}", f"/trainyard/local/{VISION}"):
        assert httpx.post(airflow.url + path, headers={"Authorization": f"Bearer {token}"}, content=b"x").status_code == 403, path
    assert VISION not in airflow.get("carol", "/trainyard/pipelines").text
    assert "digits-mlp" not in airflow.get("carol", "/trainyard/pipelines").text
    assert airflow.get("carol", "/trainyard/runs").json()["runs"] == []
    for words in (
        ("status", run["run"]),
        ("logs", run["run"]),
        ("cancel", run["run"]),
        ("run", "digits-mlp"),
        ("model", "get", "digits-mlp"),
    ):
        done = airflow.command("carol", *words)
        assert done.returncode in (2, 4), words
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1


def told(airflow: Airflow, who: str, method: str, path: str, body: Any = None) -> httpx.Response:
    """Airflow's own REST API, with the token of ``who``'s command."""
    token = json.loads((airflow.folder / who / "session.json").read_text())["token"]
    return httpx.request(method, f"{airflow.url}/api/v2{path}", headers={"Authorization": f"Bearer {token}"}, json=body, timeout=60)


THEIR_DAG = f"/dags/{VISION}"
THEIR_RUN = f"{THEIR_DAG}/dagRuns/RUN"
ATTEMPTS: dict[str, tuple[str, str, Any]] = {
    "see the DAG": ("GET", THEIR_DAG, None),
    "trigger it": ("POST", f"{THEIR_DAG}/dagRuns", {"logical_date": None}),
    "backfill it": ("POST", "/backfills", {"dag_id": VISION, "from_date": "2026-01-01T00:00:00Z", "to_date": "2026-03-01T00:00:00Z"}),
    "pause it": ("PATCH", THEIR_DAG, {"is_paused": True}),
    "delete it": ("DELETE", THEIR_DAG, None),
    "see a run": ("GET", THEIR_RUN, None),
    "mark a run failed": ("PATCH", THEIR_RUN, {"state": "failed"}),
    "delete a run": ("DELETE", THEIR_RUN, None),
    "clear a run": ("POST", f"{THEIR_RUN}/clear", {"dry_run": False}),
    "clear tasks": ("POST", f"{THEIR_DAG}/clearTaskInstances", {"dry_run": False, "dag_run_id": "RUN"}),
    "mark a task": ("PATCH", f"{THEIR_RUN}/taskInstances/train", {"new_state": "success"}),
    "read a log": ("GET", f"{THEIR_RUN}/taskInstances/check/logs/1", None),
    "read XComs": ("GET", f"{THEIR_RUN}/taskInstances/check/xcomEntries", None),
    "write an XCom": ("POST", f"{THEIR_RUN}/taskInstances/check/xcomEntries", {"key": "a", "value": "b"}),
    "read its source": ("GET", f"/dagSources/{VISION}", None),
    "see its form": ("GET", f"{THEIR_DAG}/details", None),
    "raise the other's pool": ("PATCH", "/pools/tenant-vision", {"pool": "tenant-vision", "slots": 600}),
    "raise one's own pool": ("PATCH", "/pools/tenant-tabular", {"pool": "tenant-tabular", "slots": 600}),
    "make a pool": ("POST", "/pools", {"name": "mine", "slots": 600}),
    "delete the other's pool": ("DELETE", "/pools/tenant-vision", None),
    "pause the reaper": ("PATCH", "/dags/reap_stray_jobs", {"is_paused": True}),
    "trigger the reaper": ("POST", "/dags/reap_stray_jobs/dagRuns", {"logical_date": None}),
    "pause the reconciler": ("PATCH", "/dags/reconcile_tenants", {"is_paused": True}),
    "write a variable for the other": ("POST", "/variables", {"key": "k", "value": "v", "team_name": "vision"}),
    "make a connection for the other": ("POST", "/connections", {"connection_id": "c", "conn_type": "http", "team_name": "vision"}),
}


@pytest.mark.parametrize("what", ATTEMPTS)
def test_airflows_own_api_refuses_another_tenants_person(airflow: Airflow, run: dict[str, str], what: str) -> None:
    """carol, who may start and stop tabular's runs, on vision's and on what is nobody's to change (docs/isolation.md)."""
    method, path, body = ATTEMPTS[what]
    run_id = run["run_id"].replace("+", "%2B").replace(":", "%3A")
    if body and "dag_run_id" in body:
        body = {**body, "dag_run_id": run["run_id"]}
    answer = told(airflow, "carol", method, path.replace("RUN", run_id), body)
    assert answer.status_code == 403, f"{answer.status_code}: {answer.text[:500]}"


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/variables/theirs"), ("GET", "/connections/theirs"), ("DELETE", "/variables/theirs")]
)
def test_another_tenants_variables_and_connections_are_closed(airflow: Airflow, method: str, path: str) -> None:
    assert told(airflow, "alice", method, path).status_code in (403, 404)


@pytest.mark.parametrize(
    "path", ["/dags", "/pools", "/variables", "/connections", "/dags/~/dagRuns", "/dags/~/dagRuns/~/taskInstances", "/eventLogs"]
)
def test_lists_name_nothing_of_another_tenant(airflow: Airflow, run: dict[str, str], path: str) -> None:
    answer = told(airflow, "carol", "GET", path)
    assert answer.status_code in (200, 403), answer.text
    for word in (VISION, run["run_id"], "tenant-vision", "reap_stray_jobs"):
        assert word not in answer.text, f"{path}: {word}"
    mine = told(airflow, "alice", "GET", path).text
    assert "of-tabular" not in mine
    # Airflow's event log shows everybody what was done to things of no DAG, alice's own attempts above among them; never values.
    assert path == "/eventLogs" or "theirs" not in mine


def test_no_pool_of_no_team_is_a_members_either(airflow: Airflow) -> None:
    for pool in ("tenant-vision", "platform-steps", "platform-upkeep", "default_pool"):
        for who in ("alice", "victor"):
            for method, body in (("PATCH", {"slots": 1000}), ("DELETE", None)):
                answer = told(airflow, who, method, f"/pools/{pool}", body)
                assert answer.status_code == 403, (who, method, pool, answer.status_code)
    bulk = {"actions": [{"action": "create", "entities": [{"name": "mine", "slots": 1000, "team_name": "vision"}]}]}
    assert told(airflow, "alice", "PATCH", "/pools", bulk).status_code == 403


def test_each_sees_the_slots_of_their_own_team(airflow: Airflow, run: dict[str, str]) -> None:
    def seen(who: str) -> list[str]:
        return [tenant["tenant"] for tenant in airflow.json(who, "tenants")["tenants"]]

    assert (seen("alice"), seen("victor"), seen("carol")) == (["vision"], ["vision"], ["tabular"])
    assert {"tabular", "vision"} <= set(seen("admin"))
    (vision,) = airflow.json("alice", "tenants")["tenants"]
    assert (vision["state"], vision["slots"], vision["used"], vision["free"], vision["slot_hours"]) == ("active", 6, 0, 6, 0)
    # No cluster runs here, which is said, and is no failure.
    assert vision["quota"] is None
    assert any(text.startswith("the cluster was not asked") for text in vision["disagreements"])
    assert "tabular" not in airflow.command("alice", "tenants").stdout


def test_upkeep_keeps_pools_through_the_rest_api(airflow: Airflow, run: dict[str, str]) -> None:
    from trainyard.settings import load
    from trainyard.upkeep import airflow_pools
    from trainyard.upkeep.airflow_rest import AirflowRest, Login

    settings = load(airflow.folder / "config", environ={})
    lowered = {"pool": "tenant-vision", "slots": 3, "include_deferred": False}
    assert told(airflow, "admin", "PATCH", "/pools/tenant-vision", lowered).status_code == 200
    with AirflowRest(Login(airflow.url, "_upkeep", PASSWORDS["_upkeep"])) as rest:
        said = airflow_pools.sync(settings, rest, dry_run=True)
        assert "update pool tenant-vision: slots 3 → 6" in map(str, said.changes)
        # The samples' third tenant is new here: that a running Airflow cannot take up.
        assert [change.what for change in said.changes if change.action == "missing"] == ["pool tenant-forecast"]
        assert airflow.get("admin", "/api/v2/pools/tenant-vision").json()["slots"] == 3
        assert airflow_pools.sync(settings, rest, dry_run=False) == said
        assert airflow.get("admin", "/api/v2/pools/tenant-vision").json()["slots"] == 6
        assert [change.action for change in airflow_pools.sync(settings, rest, dry_run=False).changes] == ["missing"]
        assert airflow_pools.unfinished(rest)["vision"] >= 1


def test_a_login_that_airflow_refuses_is_said_in_one_line(airflow: Airflow) -> None:
    from trainyard.errors import RefusedError
    from trainyard.upkeep.airflow_rest import AirflowRest, Login

    with pytest.raises(RefusedError, match="Airflow refuses POST"):
        AirflowRest(Login(airflow.url, "_upkeep", "wrong"))


def test_nobody_gets_anything(airflow: Airflow, run: dict[str, str]) -> None:
    for path in (
        "me",
        "pipelines",
        "tenants",
        "runs",
        "models",
        f"models/{VISION}",
        f"runs/{VISION}/{run['run_id']}",
        "openapi.json",
        "docs",
    ):
        assert httpx.get(f"{airflow.url}/trainyard/{path}").status_code in (401, 404), path
        assert httpx.get(f"{airflow.url}/trainyard/{path}", headers={"Authorization": "Bearer x"}).status_code in (403, 404), path


def test_a_dag_that_nobody_knows_opens_nothing(airflow: Airflow) -> None:
    for dag_id in ("~", "nothing", "train_vision_nothing"):
        assert airflow.get("carol", f"/trainyard/models/{dag_id}").status_code == 404, dag_id


def test_a_viewer_starts_and_publishes_nothing(airflow: Airflow, run: dict[str, str]) -> None:
    assert airflow.command("victor", "run", "digits-mlp", "--no-follow").returncode == 4
    assert airflow.command("victor", "cancel", run["run"]).returncode == 4
    assert [r["run"] for r in airflow.json("alice", "status")["runs"]] == [run["run"]]


def test_a_package_is_published_by_its_team_alone(airflow: Airflow) -> None:
    source = CHECKOUT / "examples" / "digits_model"
    answer = airflow.json("carol", "publish", str(source))
    assert (answer["package"], answer["by"], answer["changed"]) == ("digits_model", "carol", True)
    assert airflow.store("tabular").get_json(keys.code_newest("digits_model"))["sha256"] == answer["sha256"]
    assert airflow.json("carol", "publish", "digits-own", "--from", str(source / "digits_model"))["changed"] is False
    refused = airflow.command("alice", "publish", str(source))
    assert refused.returncode == 2
    assert "digits_model" in refused.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--version", "9.9.9"], "has no version `9.9.9`"),
        (["--set", "workers=0"], "workers"),
        (["--set", "epoch=3"], "did you mean `epochs`?"),
        (["--set", "batch_size=many"], "batch_size"),
    ],
)
def test_bad_input_starts_nothing(airflow: Airflow, run: dict[str, str], words: list[str], says: str) -> None:
    done = airflow.command("alice", "run", "digits-mlp", *words)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert len(airflow.json("alice", "status", "digits-mlp", "--all")["runs"]) == 1


def test_a_backfill_is_over_dataset_versions(airflow: Airflow, run: dict[str, str]) -> None:
    would = airflow.json("alice", "backfill", "digits-mlp", "--from", "1.0.0", "--to", "1.1.0", "--dry-run")
    assert would == {"backfill": None, "versions": ["1.1.0"]}  # 1.0.0 has a run already
    one = airflow.json("alice", "backfill", "digits-mlp", "--from", "1.1.0", "--to", "1.1.0", "--dry-run")
    assert one["versions"] == ["1.1.0"]
    backwards = airflow.command("alice", "backfill", "digits-mlp", "--from", "1.1.0", "--to", "1.0.0")
    assert (backwards.returncode, "exchange" in backwards.stderr) == (2, True)
    assert airflow.command("victor", "backfill", "digits-mlp", "--from", "1.0.0", "--to", "1.1.0").returncode == 4


def test_the_doctor_sees_what_is_not_well(airflow: Airflow) -> None:
    done = airflow.command("alice", "doctor", "--json", "--state", str(airflow.folder / "no-platform"))
    findings = {item["check"]: item for item in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 1  # no scheduler runs here
    assert (findings["login"]["ok"], findings["storage"]["ok"]) == (True, True)
    assert findings["airflow"]["ok"] is False


def test_a_wrong_password_is_refused_in_one_line(airflow: Airflow) -> None:
    done = airflow.command("mallory", "login", airflow.url, "--user", "alice", "--password-stdin", text="wrong\n")
    assert done.returncode == 4
    assert done.stderr.count("\n") == 1
    assert not (airflow.folder / "mallory" / "session.json").exists()
    assert (airflow.folder / "alice" / "session.json").stat().st_mode & 0o777 == 0o600
