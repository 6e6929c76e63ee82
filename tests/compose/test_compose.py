"""docker-compose.yaml as people use it: up, login, run; and what happens to a training when Airflow's scheduler is taken from it."""

from __future__ import annotations

import json
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.compose.conftest import CHECKOUT, PROJECT, Deployment
from tests.fixtures.docker import run

pytestmark = [pytest.mark.long, pytest.mark.timeout(3000)]

PIPELINE = "mnist-cnn"
OURS = {"s3", "kubernetes", "airflow-api-server", "airflow-scheduler", "airflow-dag-processor", "airflow-triggerer"}


def events(program: subprocess.Popen[str]) -> Any:
    """What a followed run says, one by one."""
    assert program.stdout is not None
    for line in program.stdout:
        yield json.loads(line)


def test_secrets_are_random_and_for_ones_own_eyes(prepared: Deployment) -> None:
    assert stat.S_IMODE(prepared.env_file.stat().st_mode) == 0o600
    secrets = [value for name, value in prepared.values.items() if re.search("PASSWORD|KEY|SECRET", name)]
    assert len(secrets) == len(set(secrets)) == 7
    assert all(len(value) >= 20 for value in secrets)
    before = prepared.env_file.read_text()
    # Again: what is there is kept, and images come from the cache.
    told = {
        "ENV_FILE": str(prepared.env_file),
        "TRAINYARD_TAG": prepared.environment["TRAINYARD_TAG"],
        "PATH": "/usr/bin:/bin",
        "KUBE_BINARY": "/bin/true",
    }
    subprocess.run(["sh", str(CHECKOUT / "local/compose/prepare")], env={**told, "DOCKER_HOST": "unix:///nonexistent"}, capture_output=True)
    assert prepared.env_file.read_text() == before


def test_without_secrets_nothing_is_started(compose_program: tuple[str, ...], tmp_path: Path) -> None:
    """No password is one that everybody knows."""
    (tmp_path / "env").touch()
    done = run(*compose_program, "--project-directory", str(CHECKOUT), "--env-file", str(tmp_path / "env"), "config", check=False)
    assert done.returncode != 0
    assert "run local/compose/prepare" in done.stderr


def test_another_cluster_is_two_lines_of_env(prepared: Deployment, tmp_path: Path) -> None:
    """No container of ours for it, its kubeconfigs in place of ours, and nothing else changes."""

    def services(**environment: str) -> dict[str, Any]:
        files = ("--project-directory", str(CHECKOUT), "--env-file", str(prepared.env_file))
        done = run(*prepared.program, *files, "config", "--format", "json", **{**prepared.environment, **environment})
        found: dict[str, Any] = json.loads(done.stdout)["services"]
        return found

    ours = services()
    theirs = services(COMPOSE_PROFILES="", TRAINYARD_CLUSTER="mycluster", TRAINYARD_KUBECONFIGS=str(tmp_path))
    assert set(ours) - set(theirs) == {"kubernetes"}
    for name, service in theirs.items():
        if not name.startswith("airflow-"):
            assert service == ours[name]
            continue
        assert service["environment"] == ours[name]["environment"] | {"TRAINYARD_CLUSTER": "mycluster"}
        access = next(volume for volume in service["volumes"] if volume["target"] == "/access")
        assert (access["type"], access["source"], access["read_only"]) == ("bind", str(tmp_path), True)
        rest = [volume for volume in service["volumes"] if volume != access]
        assert rest == [volume for volume in ours[name]["volumes"] if volume["target"] != "/access"]


def test_only_airflow_and_s3_are_published_and_on_loopback(deployment: Deployment) -> None:
    rows = run("docker", "ps", "--filter", f"label=com.docker.compose.project={PROJECT}", "--format", "{{.Names}} {{.Ports}}").stdout
    published = {row.split()[0]: re.findall(r"(\S+)->(\d+)/tcp", row) for row in rows.splitlines()}
    assert len(published) == len(OURS) + 1
    found = {name: where for name, where in published.items() if where}
    assert found == {
        f"{PROJECT}-airflow-api-server-1": [(f"127.0.0.1:{deployment.environment['AIRFLOW_PORT']}", "8080")],
        f"{PROJECT}-s3-1": [(f"127.0.0.1:{deployment.environment['S3_PORT']}", "8333")],
    }


def test_seaweeds_inner_ports_answer_nobody_else(deployment: Deployment) -> None:
    """They hand out any object without credentials."""
    code = (
        "import socket\n"
        "def open_(port):\n"
        "    try: socket.create_connection(('s3', port), 3).close(); return True\n"
        "    except OSError: return False\n"
        "print([port for port in (8333, 8888, 9333, 8080, 18888, 19333, 18080, 18333) if open_(port)])"
    )
    done = deployment.compose("exec", "-T", "airflow-scheduler", "python", "-c", code)
    assert done.stdout.strip() in ("[8333]", "[8333, 18333]")


def test_containers_of_ours_have_no_rights_and_a_read_only_root(deployment: Deployment) -> None:
    names = [f"{PROJECT}-{service}-1" for service in sorted(OURS)]
    for about in json.loads(run("docker", "inspect", *names).stdout):
        host = about["HostConfig"]
        assert (host["ReadonlyRootfs"], host["CapDrop"], host["Privileged"]) == (True, ["ALL"], False), about["Name"]
        assert about["Config"]["User"] == "65532:65532", about["Name"]


def test_a_training_outlives_its_scheduler(deployment: Deployment) -> None:
    """The task's next try adopts the gang: no step is trained twice, and the run ends green."""
    program = deployment.trainyard("run", PIPELINE, "--set", "epochs=12", "--json")
    steps: list[int] = []
    tries = 0
    end: dict[str, Any] = {}
    restarted = False
    for event in events(program):
        if event["event"] == "progress":
            steps.append(event["step"])
            if not restarted and steps[-1] > 20:
                deployment.compose("restart", "airflow-scheduler")
                restarted = True
        elif event["event"] == "step" and event["step"] == "train":
            tries = max(tries, event["try"])
        elif event["event"] == "end":
            end = event
    assert program.wait(timeout=60) == 0
    assert restarted
    assert tries == 2
    assert (end["state"], end["outcome"]) == ("success", "exported")
    assert end["accuracy"] > 0.9
    assert steps == sorted(steps)
    # One pod a replica: nothing of the gang was made again.
    (logs,) = deployment.said("logs", str(end["run"]))
    attempts = {entry["replica"]: len(entry["attempts"]) for entry in logs["replicas"]}
    assert {"chief-0", "worker-0", "ps-0"} <= set(attempts)
    assert set(attempts.values()) == {1}
    pods = deployment.compose("exec", "-T", "kubernetes", "sh", "-c", "ls /work/kubernetes/kubelet/pods | wc -l")
    assert pods.stdout.strip() == "0"


def test_a_laptop_gets_model_and_logs_by_the_published_ports(deployment: Deployment, tmp_path: Path) -> None:
    (answer,) = deployment.said("model", "get", PIPELINE, "-o", str(tmp_path / "model"))
    assert list((tmp_path / "model").rglob("saved_model.pb")), answer
    program = deployment.trainyard("logs", PIPELINE, "chief")
    out, err = program.communicate(timeout=120)
    assert program.returncode == 0, err
    assert "done: step" in out


def test_data_outlives_a_stop_and_all_end_within_their_grace(deployment: Deployment) -> None:
    before = deployment.said("models", PIPELINE)
    deployment.compose("stop")
    words = ("--filter", f"label=com.docker.compose.project={PROJECT}", "--format", '{{.Label "com.docker.compose.service"}} {{.Status}}')
    rows = run("docker", "ps", "--all", *words).stdout.splitlines()
    ended = {row.split()[0]: int(re.search(r"Exited \((\d+)\)", row)[1]) for row in rows}  # type: ignore[index]
    # 137: killed at the end of its grace, which is how SeaweedFS ends always.
    assert ended.pop("s3") == 137
    assert set(ended.values()) == {0}, ended
    deployment.compose("down")
    names = run("docker", "ps", "--all", "--quiet", "--filter", f"label=com.docker.compose.project={PROJECT}").stdout
    assert names == ""
    deployment.up()
    assert deployment.said("models", PIPELINE) == before
