"""The training DAGs as Airflow reads them: one for each pipeline file, all of one shape, made without network or heavy imports."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
CONFIG = CHECKOUT / "config"
TENANTS = sorted(path.stem for path in (CONFIG / "tenants").glob("*.yaml"))
PIPELINES = {path.stem: yaml.safe_load(path.read_text()) for path in sorted((CONFIG / "pipelines").glob("*.yaml"))}
DATASETS = {path.stem: yaml.safe_load(path.read_text()) for path in sorted((CONFIG / "datasets").glob("*.yaml"))}

GRAPH = {
    "check": {"prepare", "clean_up"},
    "prepare": {"shard"},
    "shard": {"plan"},
    "plan": {"train"},
    "train": {"evaluate"},
    "evaluate": {"gate"},
    "gate": {"export"},
    "export": {"clean_up"},
    "clean_up": set(),
}
PODS = ("prepare", "shard", "plan", "evaluate", "gate", "export")


def bundle(folder: Path, tenant: str) -> Path:
    """What ``trainyard sync`` makes: a folder named after the tenant, with a copy of the one file."""
    made = folder / tenant
    made.mkdir(parents=True)
    shutil.copy(CHECKOUT / "dags" / "training_dag.py", made)
    return made


@pytest.fixture(scope="module")
def bags(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Each tenant's bundle, read by Airflow's own DagBag."""
    from airflow.dag_processing.dagbag import DagBag

    folder = tmp_path_factory.mktemp("bundles")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINYARD_CONFIG", str(CONFIG))
        return {tenant: DagBag(str(bundle(folder, tenant))) for tenant in TENANTS}


@pytest.fixture(scope="module")
def dags(bags: dict[str, Any]) -> dict[str, Any]:
    found = {dag_id: dag for bag in bags.values() for dag_id, dag in bag.dags.items()}
    assert found, "every test below would pass"
    return found


def test_one_dag_for_each_pipeline_in_its_own_tenants_bundle(bags: dict[str, Any]) -> None:
    assert len(TENANTS) >= 2
    for tenant, bag in bags.items():
        assert bag.import_errors == {}
        wanted = {f"train_{tenant}_{name}" for name, pipeline in PIPELINES.items() if pipeline["tenant"] == tenant}
        assert set(bag.dags) == wanted
        state = yaml.safe_load((CONFIG / "tenants" / f"{tenant}.yaml").read_text())["state"]
        assert wanted or state == "draining", f"tenant {tenant} of the samples has no pipeline"


def test_the_file_is_thin_and_makes_nothing_in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.dag_processing.dagbag import DagBag

    monkeypatch.setenv("TRAINYARD_CONFIG", str(CONFIG))
    assert len((CHECKOUT / "dags" / "training_dag.py").read_text().splitlines()) <= 40
    bag = DagBag(str(CHECKOUT / "dags" / "training_dag.py"))
    assert (bag.dags, bag.import_errors) == ({}, {})


def test_all_have_the_same_steps(dags: dict[str, Any]) -> None:
    for dag in dags.values():
        assert {task.task_id: set(task.downstream_task_ids) for task in dag.tasks} == GRAPH


def test_the_teardown_runs_whenever_check_has_passed_and_can_fail_the_run(dags: dict[str, Any]) -> None:
    for dag in dags.values():
        teardown = dag.get_task("clean_up")
        assert teardown.is_teardown
        assert teardown.on_failure_fail_dagrun
        assert dag.get_task("check").is_setup
        assert [task.task_id for task in dag.tasks if task.is_setup] == ["check"]


def test_every_task_is_in_a_pool_it_may_use(dags: dict[str, Any]) -> None:
    """A task that names another team's pool is never run; one in Airflow's default pool is limited by nobody."""
    for dag_id, dag in dags.items():
        tenant = dag_id.split("_")[1]
        pools = {task.task_id: task.pool for task in dag.tasks}
        assert pools == dict.fromkeys(GRAPH, f"tenant-{tenant}") | {"check": "platform-steps", "clean_up": "platform-steps"}


def test_a_gangs_task_takes_the_slots_of_all_its_pods(dags: dict[str, Any]) -> None:
    for name, pipeline in PIPELINES.items():
        task = dags[f"train_{pipeline['tenant']}_{name}"].get_task("train")
        gang = {"chief_slots": 1, "ps_slots": 1, "worker_slots": 1, "worker_gpus": 0} | pipeline["gang"]
        slots = gang["chief_slots"] + gang["parameter_servers"] * gang["ps_slots"] + gang["workers"] * gang["worker_slots"]
        assert task.pool_slots == slots
        assert task.gang_shape == gang


def test_shards_are_mapped_over_the_datasets_tasks(dags: dict[str, Any]) -> None:
    for name, pipeline in PIPELINES.items():
        task = dags[f"train_{pipeline['tenant']}_{name}"].get_task("shard")
        assert task.expand_input.value == {"index": list(range(DATASETS[pipeline["dataset"]].get("shard_tasks", 1)))}


def test_every_pod_is_the_houses_and_every_step_has_a_module_of_its_name(dags: dict[str, Any]) -> None:
    from trainyard.operators.step_pod import HousePod, StepPod

    for dag in dags.values():
        for step in PODS:
            task = dag.get_task(step)
            kind = task.operator_class if hasattr(task, "operator_class") else type(task)
            assert issubclass(kind, StepPod)
            assert (CHECKOUT / "plugins/trainyard/steps" / f"{step}.py").is_file()
            assert (CHECKOUT / "images/trainer/src/trainer/steps" / f"{step}.py").is_file()
        assert isinstance(dag.get_task("clean_up"), HousePod)


def test_retries(dags: dict[str, Any]) -> None:
    for dag in dags.values():
        for task in dag.tasks:
            assert task.retries >= 2, f"{task.task_id}: a lost worker must not be a red run"
            assert task.retry_delay.total_seconds() <= 10
        assert dag.get_task("train").retry_delay.total_seconds() <= 1, "its slots are free meanwhile, its pods are not"


def test_only_gate_and_export_have_the_export_identity(dags: dict[str, Any]) -> None:
    for dag in dags.values():
        secrets = {step: getattr(dag.get_task(step), "secret", "s3-run") for step in PODS}
        assert secrets == dict.fromkeys(PODS, "s3-run") | {"gate": "s3-export", "export": "s3-export"}


def test_the_form_refuses_before_there_is_a_run(dags: dict[str, Any]) -> None:
    from airflow.sdk.exceptions import ParamValidationError

    params = dags["train_vision_mnist-cnn"].params
    for name, wrong in {"workers": 0, "epochs": 0, "mode": "sink", "learning_rate": 0, "dataset_version": "9.9.9"}.items():
        with pytest.raises(ParamValidationError):
            params.get_param(name).resolve(wrong)
    params.validate()


def test_partitions_are_the_datasets_versions(dags: dict[str, Any]) -> None:
    for name, pipeline in PIPELINES.items():
        dag = dags[f"train_{pipeline['tenant']}_{name}"]
        assert set(dag.timetable.versions) == set(DATASETS[pipeline["dataset"]]["versions"])
        assert dag.timetable.partitioned
        assert dag.catchup is False


def test_documentation_and_owner(dags: dict[str, Any]) -> None:
    for name, pipeline in PIPELINES.items():
        dag = dags[f"train_{pipeline['tenant']}_{name}"]
        assert pipeline["description"] in dag.doc_md
        assert {"trainyard", pipeline["tenant"], pipeline["dataset"]} <= set(dag.tags)
        owner = yaml.safe_load((CONFIG / "tenants" / f"{pipeline['tenant']}.yaml").read_text())["owner"]
        assert {task.owner for task in dag.tasks} == {owner}


def test_the_serialized_dag_is_what_the_scheduler_needs(dags: dict[str, Any]) -> None:
    """The scheduler never sees our classes: slots, shape and versions must be in the document."""
    from airflow.serialization.serialized_objects import DagSerialization

    for dag in dags.values():
        document = json.loads(json.dumps(DagSerialization.to_dict(dag)))
        again = DagSerialization.from_dict(document)
        train = again.get_task("train")
        assert train.gang_shape == dag.get_task("train").gang_shape
        assert train.pool_slots == dag.get_task("train").pool_slots
        assert again.timetable == dag.timetable


def test_one_broken_pipeline_takes_no_other_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.dag_processing.dagbag import DagBag

    copy = tmp_path / "config"
    shutil.copytree(CONFIG, copy)
    (copy / "pipelines" / "digits-mlp.yaml").write_text("tenant: vision\nworkers: [")
    monkeypatch.setenv("TRAINYARD_CONFIG", str(copy))
    bag = DagBag(str(bundle(tmp_path / "bundles", "vision")))
    assert set(bag.dags) == {"train_vision_mnist-cnn"}


def test_a_task_that_starts_reads_its_own_dag_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.definitions.context import get_parsing_context

    from trainyard.pipelines.factory import tenant_dags

    monkeypatch.setenv("TRAINYARD_CONFIG", str(CONFIG))
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "train_vision_digits-mlp")  # as the task runner sets it
    context = get_parsing_context()
    assert context.dag_id == "train_vision_digits-mlp"
    assert set(tenant_dags("vision")) == {"train_vision_digits-mlp"}


PARSE = """
import runpy, socket, sys
def refuse(*a, **k):
    raise AssertionError("the network is asked at parse")
socket.socket.connect = socket.socket.connect_ex = refuse
socket.getaddrinfo = refuse
made = runpy.run_path(sys.argv[1])
from airflow.sdk import DAG
print(sum(isinstance(value, DAG) for value in made.values()))
heavy = {"tensorflow", "keras", "tensorflow_datasets", "boto3", "botocore", "pandas", "numpy", "trainer", "fastapi"}
print(*sorted(set(sys.modules) & heavy))
"""


def test_a_parse_asks_no_network_and_imports_nothing_heavy(tmp_path: Path) -> None:
    file = bundle(tmp_path, "vision") / "training_dag.py"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW__", "TRAINYARD_", "KUBECONFIG"))}
    environment |= {"TRAINYARD_CONFIG": str(CONFIG), "AIRFLOW_HOME": str(tmp_path / "home"), "PYTHONPATH": str(CHECKOUT / "plugins")}
    done = subprocess.run([sys.executable, "-c", PARSE, str(file)], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    count, heavy = done.stdout.splitlines()[-2:]
    assert int(count) == sum(pipeline["tenant"] == "vision" for pipeline in PIPELINES.values())
    assert heavy == ""


def test_the_plugin_registers_the_timetable_and_pays_for_nothing_else(tmp_path: Path) -> None:
    """Every Airflow process loads it."""
    code = (
        "import sys, trainyard_plugin as p; from trainyard.pipelines.timetable import DatasetVersionTimetable as T; "
        "assert p.TrainyardPlugin.timetables == [T]; "
        "print(*sorted(set(sys.modules) & {'fastapi', 'kubernetes', 'boto3', 'trainyard.api', 'tensorflow'}))"
    )
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "plugins"), "AIRFLOW_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1].strip() == ""


def test_a_draining_tenant_has_no_ticks_and_its_form_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.dag_processing.dagbag import DagBag

    config = tmp_path / "config"
    shutil.copytree(CONFIG, config)
    for folder, name, old, new in (
        ("tenants", "vision", "state: active", "state: draining"),
        ("pipelines", "digits-mlp", "tenant: vision", "tenant: vision\nschedule: 0 3 * * *"),
    ):
        path = config / folder / f"{name}.yaml"
        path.write_text(path.read_text().replace(old, new))
    monkeypatch.setenv("TRAINYARD_CONFIG", str(config))
    bag = DagBag(str(bundle(tmp_path / "bundles", "vision")))
    assert bag.import_errors == {}
    dag = bag.dags["train_vision_digits-mlp"]
    assert "0 3 * * *" not in str(dag.timetable.serialize())
    assert "Tenant vision is draining: no new run begins" in dag.doc_md
    assert "is draining: no new run begins" in dag.params.get_param("dataset_version").description


def test_a_gang_goes_before_steps_a_larger_one_first_and_a_pipelines_priority_before_that(dags: dict[str, Any]) -> None:
    def weight(pipeline: str, task: str) -> int:
        return int(dags[f"train_vision_{pipeline}"].get_task(task).priority_weight)

    assert weight("mnist-cnn", "train") > weight("digits-mlp", "train") > weight("mnist-cnn", "prepare")
    for name, dag in dags.items():
        for task in dag.tasks:
            assert task.weight_rule == "absolute", task
        steps = [task.priority_weight for task in dag.tasks if task.task_id not in ("check", "clean_up")]
        assert max(steps) < dag.get_task("check").priority_weight < dag.get_task("clean_up").priority_weight < 2_000_000, name


def test_priorities_do_not_mix() -> None:
    from trainyard.pipelines import priority
    from trainyard.settings import load

    settings = load(CONFIG, environ={})
    tenant, pipeline = settings.tenants["vision"], settings.pipelines["mnist-cnn"]
    huge = pipeline.model_copy(update={"gang": pipeline.gang.model_copy(update={"workers": 9_997})})
    urgent = pipeline.model_copy(update={"priority": 1})
    assert priority.of_gang(tenant, huge) < priority.of_step(tenant, urgent)
    most = huge.model_copy(update={"priority": 9})
    assert priority.of_gang(tenant.model_copy(update={"priority": 9}), most) < priority.CHECK
