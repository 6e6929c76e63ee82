"""A tenant's file: what it may say, what is wrong with it in one error, and what its pipelines take from it."""

from __future__ import annotations

from typing import get_args

import pytest
from pydantic import BaseModel

from tests.unit.plugins.trainyard.settings.conftest import Config
from trainyard.settings import pipelines
from trainyard.settings.defaults import GANG, GATE, TOP, TRAINING, PipelineDefaults

VISION = "tenants/vision"
TABULAR = "tenants/tabular"
OWN = "pipelines/digits-own"
MNIST = "pipelines/mnist-cnn"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("slots: 6", "slots: -6", "slots = -6: must be 1 or more"),
        ("slots: 6", "slots: 0", "slots = 0: must be 1 or more"),
        (
            "memory: 2Gi",
            "memory: 1G",
            'slot.memory = "1G": give bytes with one of the units Ki, Mi, Gi, Ti, as 512Mi or 2Gi; did you mean 1Gi?',
        ),
        ("memory: 2Gi", "memory: 256Mi", "slot: memory 256Mi is too small for TensorFlow to start: give 512Mi or more"),
        ("slots: 6", "slots: 6\nprio: 6", "prio = 6: unknown key; did you mean 'priority'?"),
        ("slots: 6", "slots: 6\ngpus: -1", "gpus = -1: must be 0 or more"),
        ("slots: 6", "slots: 6\npriority: 10", "priority = 10: must be 9 or less"),
        ("state: active", "state: paused", "state = \"paused\": must be 'active' or 'draining'"),
        ("runs_days: 90", "runs_days: 0", "retention.runs_days = 0: must be 1 or more"),
        ("runs_days: 90", "run_days: 90", "retention.run_days = 90: unknown key; did you mean 'runs_days'?"),
        ("slots: 6", "slots: 6\nextras: {load_balancers: -1}", "extras.load_balancers = -1: must be 0 or more"),
        ("slots: 6", "slots: 6\nimages: ['*']", 'images.0 = "*": write an image reference, with * in place of any tag'),
        ("slots: 6", "slots: 6\ndefaults: {epochs: 3}", "defaults.epochs = 3: unknown key"),
        ("slots: 6", "slots: 6\ndefaults: {training: {epochs: 3}}", "defaults.training.epochs = 3: unknown key"),
        ("slots: 6", "slots: 6\ndefaults: {gate: {minimum: 0.1}}", "defaults.gate.minimum = 0.1: unknown key"),
        ("slots: 6", "slots: 6\ndefaults: {gang: {workers: 0}}", "defaults.gang.workers = 0: must be 1 or more"),
        ("slots: 6", "slots: 6\ndefaults: {schedule: 0 0 30 2 *}", 'defaults.schedule = "0 0 30 2 *": never comes'),
    ],
)
def test_a_wrong_file_is_one_error_with_the_way_out(config: Config, old: str, new: str, told: str) -> None:
    config.edit(VISION, old, new)
    problem = config.problem()
    assert problem.startswith("config/tenants/vision.yaml:")
    assert told in problem


def test_two_tenants_never_have_one_bucket_or_namespace(config: Config) -> None:
    """Both come from the name alone; the models bucket of one is what a tenant of such a name would have for its data."""
    config.path(TABULAR).rename(config.folder / "tenants" / "vision-models.yaml")
    config.path(OWN).unlink()
    problem = config.problem()
    assert problem.startswith("config/tenants/vision-models.yaml:")
    assert "the name 'vision-models' ends in -models, as models buckets do: rename the file" in problem


class TestDefaults:
    def test_a_pipeline_takes_what_it_does_not_say(self, config: Config) -> None:
        more = "defaults:\n  gang: {ps_slots: 2}\n  gate: {on_reject: fail}\n  retrain: always\n"
        config.edit(TABULAR, "defaults:\n", more)
        own = config.load().pipelines["digits-own"]
        assert (own.training.batch_size, own.training.optimizer) == (32, "adam")
        assert (own.gang.ps_slots, own.gang.workers, own.gate.on_reject, own.retrain) == (2, 1, "fail", "always")

    def test_what_it_says_counts_also_null(self, config: Config) -> None:
        config.edit(TABULAR, "defaults:\n", "defaults:\n  schedule: 0 6 * * 1\n")
        assert config.load().pipelines["digits-own"].schedule == "0 6 * * 1"
        config.edit(OWN, "gate:\n", "schedule: null\ngate:\n")
        config.edit(OWN, "  epochs: 20\n", "  epochs: 20\n  batch_size: 16\n")
        own = config.load().pipelines["digits-own"]
        assert (own.schedule, own.training.batch_size) == (None, 16)

    def test_others_pipelines_do_not_have_them(self, config: Config) -> None:
        config.edit(TABULAR, "defaults:\n", "defaults:\n  retrain: always\n")
        assert config.load().pipelines["digits-mlp"].retrain == "changed"

    def test_a_sum_that_comes_of_a_default_is_refused_in_the_pipelines_file(self, config: Config) -> None:
        config.edit(TABULAR, "defaults:\n", "defaults:\n  gang: {worker_slots: 4}\n")
        assert "digits-own.yaml" in config.problem()
        assert "1 worker × 4 + 1 PS × 1 + chief 1 = 6 slots; tenant tabular has 4" in config.problem()

    def test_every_key_that_may_have_one_has_the_pipelines_own_type(self) -> None:
        parts: dict[type[BaseModel], tuple[str, ...]] = {pipelines.Training: TRAINING, pipelines.Gang: GANG, pipelines.Gate: GATE}
        for model, keys in parts.items():
            section = PipelineDefaults.model_fields[model.__name__.lower()].annotation
            (found,) = [kind for kind in get_args(section) if kind is not type(None)]
            assert tuple(found.model_fields) == keys
            for key in keys:
                assert found.model_fields[key].description == model.model_fields[key].description
        assert set(PipelineDefaults.model_fields) == {*TOP, "training", "gang", "gate"}
        # What a pipeline is, how long it trains and what its gate asks for is its own.
        own = {"name", "tenant", "dataset", "description", "model", "export", "seed"}
        assert set(pipelines.Pipeline.model_fields) - set(PipelineDefaults.model_fields) == own


class TestGpus:
    def test_a_pipeline_that_asks_for_more_than_there_are_is_refused_with_the_arithmetic(self, config: Config) -> None:
        config.edit(MNIST, "parameter_servers: 2", "parameter_servers: 2\n  worker_gpus: 2")
        config.edit(VISION, "slots: 6", "slots: 6\ngpus: 3")
        assert "gang.worker_gpus = 2: 2 workers × 2 GPUs = 4; tenant vision has 3: lower it, or raise gpus" in config.problem()
        config.edit(VISION, "gpus: 3", "gpus: 4")
        assert config.load().pipelines["mnist-cnn"].gang.gpus == 4

    def test_a_resource_of_kubernetes_has_a_domain(self, config: Config) -> None:
        text = config.path("clusters/embedded").read_text(encoding="utf-8")
        config.write("clusters/embedded", f"{text}gpu_resource: gpu\n")
        assert 'gpu_resource = "gpu": write a resource of Kubernetes with its domain, as nvidia.com/gpu' in config.problem()


class TestImages:
    @pytest.mark.parametrize(
        ("allowed", "image", "good"),
        [
            ("[r.example.com/vision/trainer:1]", "r.example.com/vision/trainer:1", True),
            ("[r.example.com/vision/trainer:1]", "r.example.com/vision/trainer:2", False),
            ("['r.example.com/vision/trainer:*']", "r.example.com/vision/trainer:2", True),
            ("['r.example.com/vision/trainer:*']", "r.example.com/vision/trainer-other:2", False),
            ("['r.example.com/vision/trainer@*']", "r.example.com/vision/trainer@sha256:00", True),
            ("[]", "localhost/trainyard/trainer:dev", False),
        ],
    )
    def test_a_pipeline_names_what_its_tenant_may_run(self, config: Config, allowed: str, image: str, good: bool) -> None:
        config.edit(VISION, "slots: 6", f"slots: 6\nimages: {allowed}")
        config.edit(MNIST, "gang:", f"image: {image}\ngang:")
        if good:
            assert config.load().pipelines["mnist-cnn"].image == image
        else:
            problem = config.problem()
            assert f'mnist-cnn.yaml:15: image = "{image}": tenant vision may not run it' in problem
            assert "allow it in tenants/vision.yaml, images" in problem

    def test_a_default_image_must_be_allowed_too(self, config: Config) -> None:
        config.edit(TABULAR, "defaults:\n", "defaults:\n  image: r.example.com/x:1\n")
        assert "tenant tabular may not run it" in config.problem()
