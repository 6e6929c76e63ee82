"""What a person is told: file, line, key, value, and the way out."""

from __future__ import annotations

import pytest

from tests.unit.plugins.trainyard.settings.conftest import Config

PIPELINE = "pipelines/digits-mlp"
TENANT = "tenants/vision"
DATASET = "datasets/digits"
CLUSTER = "clusters/embedded"


@pytest.mark.parametrize(
    ("name", "old", "new", "told"),
    [
        (PIPELINE, "workers: 1", "worker: 1", "gang.worker = 1: unknown key; did you mean 'workers'?"),
        (PIPELINE, "epochs: 20", "epochs: 0", "training.epochs = 0: must be 1 or more"),
        (PIPELINE, "epochs: 20", 'epochs: "20"', 'training.epochs = "20": must be a whole number, without quotes'),
        (PIPELINE, "epochs: 20", "epochs: 2.5", "training.epochs = 2.5: must be a whole number"),
        (PIPELINE, "epochs: 20", "epochs: true", "training.epochs = true: must be a whole number"),
        (PIPELINE, "epochs: 20", "epochs: 20\n  steps: 5", "training: epochs and steps are both given: give exactly one of them"),
        (PIPELINE, "  epochs: 20\n", "", "training: neither epochs nor steps is given"),
        (
            PIPELINE,
            "learning_rate: 0.003",
            "learning_rate: 1e-3",
            'training.learning_rate = "1e-3": must be a number, without quotes; write 0.001',
        ),
        (
            PIPELINE,
            "learning_rate: 0.003",
            "learning_rate: 1e308",
            '"1e308": must be a number, without quotes; write 1.0e+308 (YAML takes 1e308 for text)',
        ),
        (PIPELINE, "learning_rate: 0.003", "learning_rate: 25E-4", "write 0.0025 or 25.0e-4 (YAML takes 25E-4 for text)"),
        (PIPELINE, "epochs: 20", "epochs: 1e3", "must be a whole number, without quotes; write 1000 (YAML takes 1e3 for text)"),
        (PIPELINE, "learning_rate: 0.003", "learning_rate: .nan", "training.learning_rate = NaN"),
        (PIPELINE, "learning_rate: 0.003", "learning_rate: 0", "training.learning_rate = 0: must be more than 0"),
        (
            PIPELINE,
            "optimizer: adam",
            "optimizer: adamm",
            "training.optimizer = \"adamm\": must be 'sgd', 'momentum', 'adam', 'adamw' or 'adagrad'",
        ),
        (PIPELINE, "mode: async", "mode: sync", "training.mode = \"sync\": must be 'async'"),
        (PIPELINE, "batch_size: 32", "batch_size: 32\n  deadline_s: 60", "start_deadline_s 300 is more than deadline_s 60"),
        (
            PIPELINE,
            "trainer.models.mlp:build",
            "trainer.models.mlp.build",
            'model.build = "trainer.models.mlp.build": write module:attribute',
        ),
        (
            PIPELINE,
            "trainer.models.mlp:build",
            "my.model:build",
            "model: build 'my.model:build' is not one of Trainyard's own models (trainer.models.…): add 'package: my'",
        ),
        (PIPELINE, "  minimum: 0.85\n", "", "gate.minimum: is missing: add it (The least value that passes."),
        (PIPELINE, "gate:\n", "schedule: daily\ngate:\n", 'schedule = "daily": give five fields'),
        (PIPELINE, "gate:\n", "schedule: 99 6 * * 1\ngate:\n", 'schedule = "99 6 * * 1": is no cron expression'),
        (PIPELINE, "gate:\n", "schedule: 0 0 30 2 *\ngate:\n", 'schedule = "0 0 30 2 *": never comes'),
        (PIPELINE, "gate:\n", "schedule: '0 0 6 * * 1'\ngate:\n", "give five fields"),
        (PIPELINE, "  model: digits-mlp", "  model: Digits_MLP", 'export.model = "Digits_MLP": use 1–40 lower-case letters'),
        (PIPELINE, "gang:\n  workers: 1\n  parameter_servers: 1\n", "gang: 5\n", "gang = 5: must be a mapping"),
        (PIPELINE, "tenant: vision\n", "tenant: vision\nname: x\n", 'name = "x": the name is the file\'s own: remove this key'),
        (TENANT, "slots: 6", "slots: 6\nslots: 7", "slots: is given twice (first in line 7): remove one"),
        (
            TENANT,
            "memory: 2Gi",
            "memory: 2G",
            'slot.memory = "2G": give bytes with one of the units Ki, Mi, Gi, Ti, as 512Mi or 2Gi; did you mean 2Gi?',
        ),
        (TENANT, "memory: 2Gi", "memory: 2", "slot.memory = 2: must be text"),
        (TENANT, "memory: 2Gi", "memory: 100Mi", "slot: memory 100Mi is too small for TensorFlow to start: give 512Mi or more"),
        (TENANT, "cpu: 750m", "cpu: 5m", "slot: cpu 5m is too small for any pod: give 100m or more"),
        (TENANT, "cpu: 750m", "cpu: 0.75 cores", "give cores as 2, 1.5 or 750m"),
        (TENANT, "alice: user", "alice: op", "members.alice = \"op\": must be 'viewer' or 'user'"),
        (TENANT, "alice: user", "admin: user", "'admin' is the platform administrator's login"),
        (TENANT, "alice: user", '"a:b": user', "members.a:b"),
        (TENANT, "state: active", "state: off", "state"),
        (DATASET, '"1.0.0"', "1.0", "YAML reads this key as something else than text: put it in quotes"),
        (DATASET, '"1.0.0"', '"1.0"', 'write MAJOR.MINOR.PATCH in quotes, as "1.0.0"'),
        (DATASET, "2026-02-01T00:00:00Z", "2026-02-01", 'versions."1.1.0".released = "2026-02-01": is no time'),
        (DATASET, "2026-02-01T00:00:00Z", "2026-02-01T00:00:00", "has no time zone: write it as 2026-01-01T00:00:00Z"),
        (DATASET, "2026-02-01T00:00:00Z", "soon", 'released = "soon": is no time'),
        (DATASET, "2026-02-01T00:00:00Z", "2026-13-01T00:00:00Z", "is not valid YAML: month must be in 1..12"),
        (DATASET, "2026-02-01T00:00:00Z", "2026-01-01T01:00:00+01:00", "versions 1.0.0 and 1.1.0 were both released at 2026-01-01T0"),
        (DATASET, "shard_tasks: 1", "shard_tasks: 3", "shard_tasks 3 is more than shards 2"),
        (DATASET, "evaluation_split: test", "evaluation_split: train", "evaluate on examples not trained on"),
        (CLUSTER, "ports: {first: 20000, last: 24999, block: 64}", "port: 2222", "addressing 'host' needs ports"),
        (CLUSTER, "last: 24999", "last: 20010", "20000–20010 is smaller than one block of 64 ports"),
        (CLUSTER, "bucket_prefix: trainyard", "bucket_prefix: T", "s3.bucket_prefix"),
        (CLUSTER, "endpoint: null", "endpoint: s3.local", "write a URL of scheme, host and port"),
    ],
)
def test_one_line_with_the_way_out(config: Config, name: str, old: str, new: str, told: str) -> None:
    config.edit(name, old, new)
    problems = config.problems()
    assert any(told in problem for problem in problems), problems
    assert all(problem.startswith(f"config/{name}.yaml:") and "\n" not in problem for problem in problems)


def test_the_line_is_where_the_key_stands(config: Config) -> None:
    config.edit(PIPELINE, "epochs: 20", "epochs: 0")
    line = config.path(PIPELINE).read_text().splitlines().index("  epochs: 0") + 1
    assert config.problem().startswith(f"config/{PIPELINE}.yaml:{line}: training.epochs = 0:")


@pytest.mark.parametrize(("written", "shown"), [(".nan", "NaN"), ("-.inf", "-Infinity"), ("1.0e+999", "Infinity")])
def test_a_models_own_config_holds_finite_numbers(config: Config, written: str, shown: str) -> None:
    config.edit(PIPELINE, "config: {classes: 10}", f"config: {{rates: [0.1, {written}]}}")
    problem = config.problem()
    assert f" model.config.rates.1 = {shown}: must be a finite number" in problem


def test_a_field_that_is_not_finite_is_told_once(config: Config) -> None:
    config.edit(PIPELINE, "learning_rate: 0.003", "learning_rate: .inf")
    assert "training.learning_rate = Infinity" in config.problem()


@pytest.mark.parametrize("schedule", ["0 0 29 2 *", "0 0 31 4 1", "@monthly"])
def test_a_schedule_that_comes_seldom_is_one(config: Config, schedule: str) -> None:
    config.edit(PIPELINE, "gate:\n", f"schedule: '{schedule}'\ngate:\n")
    assert config.load().pipelines["digits-mlp"].schedule == schedule


def test_a_syntax_error_is_told_with_its_line(config: Config) -> None:
    config.write(PIPELINE, "tenant: vision\ndescription: a: b\n")
    assert config.problem().startswith(f"config/{PIPELINE}.yaml:2: is not valid YAML:")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("# only a comment\n", "is empty"),
        ("- a\n- b\n", "must be a mapping"),
        ("a: 1\n---\nb: 2\n", "is not valid YAML"),
        ("b: 1\na: &x [*x]\n", "digits-mlp.yaml:2: a.0: is an alias of what it lies in, without end"),
        ("a: &x\n  b: {c: *x}\n", "a.b.c: is an alias of what it lies in, without end"),
        ("a: " + "[" * 900 + "]" * 900 + "\n", "is not valid YAML: nested too deeply"),
        ("a: !!python/object:os.system {}\n", "is not valid YAML"),
        ("? {a: 1}\n: 2\n", "is not valid YAML"),
        ("a: !!binary aGVsbG8=\n", "holds a value that JSON has no form for"),
        ("\ttenant: x\n", "is not valid YAML"),
    ],
)
def test_what_is_no_configuration_at_all(config: Config, text: str, told: str) -> None:
    config.write(PIPELINE, text)
    assert told in config.problem()


def test_bytes_that_are_not_utf_8(config: Config) -> None:
    config.path(PIPELINE).write_bytes(b"tenant: \xff\xfe\n")
    assert "cannot be read" in config.problem()


@pytest.mark.parametrize("stem", ["Vision", "v", "a" * 31, "1st", "under_score", "platform", "vision-models"])
def test_names_that_a_tenant_cannot_have(config: Config, stem: str) -> None:
    config.path("tenants/tabular").rename(config.folder / "tenants" / f"{stem}.yaml")
    assert any(f"config/tenants/{stem}.yaml" in problem and "name" in problem for problem in config.problems())


def test_a_long_value_is_shortened(config: Config) -> None:
    config.edit(PIPELINE, "optimizer: adam", f"optimizer: {'x' * 500}")
    assert len(config.problem()) < 260
