"""The chain from a dataset version to an exported model, through a real Airflow, a real Kubernetes and a real S3."""

from __future__ import annotations

import csv
import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.platform import Platform, clean_environment, until

STEPS = {"check", "prepare", "shard", "plan", "train", "evaluate", "gate", "export", "clean_up"}
PREDICT = """
import json, sys
import numpy as np
import tensorflow as tf
assert not any(name.split(".")[0] in ("trainer", "trainyard", "airflow") for name in sys.modules)
inputs = np.array(json.load(open(sys.argv[2])), np.uint8)
serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
(name,) = serve.structured_input_signature[1]
print(json.dumps(serve(**{name: tf.constant(inputs)})["class"].numpy().tolist()))
"""


@pytest.fixture(scope="module")
def trained(platform: Platform) -> dict[str, Any]:
    """The end of one good run of digits-mlp."""
    return platform.run("digits-mlp")


def test_a_run_ends_with_an_exported_model_and_nothing_left(platform: Platform, trained: dict[str, Any]) -> None:
    assert trained["state"] == "success"
    assert trained["outcome"] == "exported"
    assert trained["accuracy"] >= 0.85
    assert trained["dataset_version"] == "1.1.0"
    assert set(trained["steps"]) == STEPS
    platform.no_pods(within_s=30)
    until(lambda: not platform.trainers(), 10, lambda: f"no process of a container is left; there are {platform.trainers()}")


def note_of(platform: Platform, run: str) -> str:
    document = platform.status(run)
    return str(platform.api("GET", f"/dags/{document['dag_id']}/dagRuns/{document['run_id']}").json()["note"])


def test_the_run_s_note_in_airflow_says_what_it_came_to(platform: Platform, trained: dict[str, Any]) -> None:
    note = note_of(platform, trained["run"])
    assert note.startswith(f"outcome: exported: digits-mlp version {trained['model_version']}, ")
    assert f", accuracy {trained['accuracy']:.4g}, " in note
    assert note.endswith(", dataset version 1.1.0")


def test_every_replica_s_log_is_whole(platform: Platform, trained: dict[str, Any]) -> None:
    listed = platform.trainyard("logs", trained["run"], "--list", "--json").document["replicas"]
    replicas = {item["replica"]: item["attempts"] for item in listed}
    assert {"prepare", "shard-0", "plan", "chief-0", "ps-0", "worker-0", "evaluate", "gate", "export"} <= set(replicas)
    for replica, attempts in replicas.items():
        assert attempts[-1]["whole"], f"{replica}: {attempts}"
        assert attempts[-1]["exit_code"] == 0, f"{replica}: {attempts}"
    chief = platform.trainyard("logs", trained["run"], "chief-0").out
    total = [int(line.split("step ")[1].split("/")[1].split()[0]) for line in chief.splitlines() if "step " in line and "/" in line]
    assert total, chief
    assert f"step {total[-1]}/{total[-1]}" in chief, "the last step is in the log"


def test_the_task_s_log_is_the_gang_s_live_stream(platform: Platform, trained: dict[str, Any]) -> None:
    document = platform.status(trained["run"])
    path = f"/dags/{document['dag_id']}/dagRuns/{document['run_id']}/taskInstances/train/logs/1"
    text = platform.api("GET", path, params={"full_content": True}).text
    for replica in ("chief-0", "ps-0", "worker-0"):
        assert f"[{replica}]" in text, f"{replica} is not in the task's log"


def test_a_fresh_process_predicts_held_out_images(platform: Platform, trained: dict[str, Any], tmp_path: Path) -> None:
    got = platform.trainyard("model", "get", "digits-mlp", "-o", str(tmp_path / "model"))
    assert got.code == 0, got.err
    (saved,) = [path.parent for path in (tmp_path / "model").rglob("saved_model.pb")]
    images, labels = held_out_digits()
    (tmp_path / "images.json").write_text(json.dumps(images), encoding="utf-8")
    command = [sys.executable, "-c", PREDICT, str(saved), str(tmp_path / "images.json")]
    done = subprocess.run(command, env=clean_environment(), cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    guesses = json.loads(done.stdout)
    accuracy = sum(a == b for a, b in zip(guesses, labels, strict=True)) / len(labels)
    assert accuracy == pytest.approx(trained["accuracy"], abs=1e-6), "the served model is the evaluated one"


def held_out_digits() -> tuple[list[Any], list[int]]:
    """Every fifth digit of the wheel's file: the test split by the dataset's own definition, read without our code."""
    file = Path(sys.prefix) / "share/samples/sklearn/datasets/data/digits.csv.gz"
    with gzip.open(file, "rt") as text:
        rows = [[int(float(value)) for value in row] for row in csv.reader(text)]
    test = rows[4::5]
    images = [[[[pixel * 15] for pixel in row[start : start + 8]] for start in range(0, 64, 8)] for row in test]
    return images, [row[64] for row in test]


def test_a_changed_file_of_a_model_is_refused(platform: Platform, trained: dict[str, Any], tmp_path: Path) -> None:
    endpoint = json.loads(Path(platform.document()["s3"]["admin_file"]).read_text(encoding="utf-8"))
    import boto3

    s3 = boto3.client(
        "s3",
        endpoint_url=endpoint["endpoint"],
        aws_access_key_id=endpoint["access_key"],
        aws_secret_access_key=endpoint["secret_key"],
        region_name="us-east-1",
    )
    key = f"{trained['model']}/{trained['model_version']}/saved_model.pb"
    whole = s3.get_object(Bucket="trainyard-vision-models", Key=key)["Body"].read()
    try:
        s3.put_object(Bucket="trainyard-vision-models", Key=key, Body=whole[:-1] + b"?")
        got = platform.trainyard("model", "get", "digits-mlp", "-o", str(tmp_path / "model"))
    finally:
        s3.put_object(Bucket="trainyard-vision-models", Key=key, Body=whole)
    assert got.code != 0
    assert "saved_model.pb" in got.err
    assert not (tmp_path / "model").exists(), "half a model is no model"


def test_a_tenant_s_own_package_is_published_and_trained(platform: Platform) -> None:
    end = platform.run("digits-own", user="carol")
    assert end["outcome"] == "exported"
    assert end["accuracy"] >= 0.85


def test_a_gate_that_says_no_is_a_good_end(platform: Platform) -> None:
    end = platform.run("digits-strict", "--set", "epochs=1")
    assert end["state"] == "success"
    assert end["outcome"] == "rejected"
    assert end["model_version"] is None
    states = {row["step"]: row["state"] for row in platform.status(end["run"])["steps"]}
    assert states["export"] == "skipped"
    assert note_of(platform, end["run"]).startswith("outcome: rejected: ")
    listed = platform.trainyard("models", "--json").document["models"]
    assert not [item for item in listed if item["pipeline"] == "digits-strict" and item["versions"]], "nothing was exported"
