"""The whole configuration: samples, names between files, sums, and what one broken file does to the rest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.plugins.trainyard.settings.conftest import SAMPLES, Config
from trainyard.errors import ConfigError
from trainyard.settings import load, load_tenant, loading

PLUGINS = Path(__file__).parents[5] / "plugins"


def test_the_samples_are_what_the_documents_promise() -> None:
    settings = load(SAMPLES, environ={})
    assert set(settings.tenants) == {"vision", "tabular", "forecast"}
    assert [p.name for p in settings.pipelines_of("vision")] == ["digits-mlp", "mnist-cnn"]
    mnist = settings.pipelines["mnist-cnn"]
    assert (mnist.gang.workers, mnist.gang.parameter_servers, mnist.gang.slots) == (2, 2, 5)
    assert (mnist.gate.metric, mnist.gate.minimum) == ("accuracy", 0.95)
    own = settings.pipelines["digits-own"]
    assert (own.tenant, own.model.package, own.model.build) == ("tabular", "digits_model", "digits_model.model:build")
    assert [version for version, _ in settings.dataset_of(own).by_release()] == ["1.0.0", "1.1.0"]
    assert settings.dataset_of(own).newest == "1.1.0"
    assert settings.tenant_of(mnist).slots == 6
    assert settings.cluster.name == "embedded"


def test_nothing_heavy_is_imported_and_nothing_is_asked_over_a_network() -> None:
    code = """
import socket, sys
def refuse(*a, **k): raise AssertionError("a socket was opened")
socket.socket = refuse
from trainyard.settings import load, load_tenant
load(sys.argv[1]); load_tenant("vision", sys.argv[1])
heavy = {"airflow", "kubernetes", "boto3", "botocore", "tensorflow", "numpy"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code, str(SAMPLES)], env={"PYTHONPATH": str(PLUGINS)}, check=True, timeout=60)


def test_the_folder_is_named_by_the_environment_or_the_error_says_how(config: Config, tmp_path: Path) -> None:
    assert load(environ={"TRAINYARD_CONFIG": str(config.folder)}).config_dir == config.folder
    with pytest.raises(ConfigError, match="set TRAINYARD_CONFIG"):
        load(environ={})
    with pytest.raises(ConfigError, match="is not a folder"):
        load(tmp_path / "nowhere", environ={})


def test_the_environment_overrides_the_profile(config: Config) -> None:
    settings = config.load(TRAINYARD_KUBECONFIG="/k", TRAINYARD_S3_ENDPOINT="http://127.0.0.1:8333")
    assert settings.cluster.kubeconfig == "/k"
    assert settings.cluster.s3.endpoint == "http://127.0.0.1:8333"
    assert config.load().cluster.kubeconfig is None


def test_another_profile_is_chosen_by_name(config: Config) -> None:
    text = config.path("clusters/embedded").read_text().replace("addressing: host", "addressing: dns")
    config.write("clusters/site", "\n".join(("port: 2222" if line.startswith("ports:") else line) for line in text.splitlines()))
    assert config.load(TRAINYARD_CLUSTER="site").cluster.port == 2222
    with pytest.raises(ConfigError, match=r"clusters/embeded.yaml: does not exist \(TRAINYARD_CLUSTER\); did you mean 'embedded'"):
        config.load(TRAINYARD_CLUSTER="embeded")


def test_all_problems_of_all_files_come_at_once(config: Config) -> None:
    config.edit("tenants/vision", "slots: 6", "slots: -6")
    config.edit("datasets/mnist5k", "shards: 4", "shards: four")
    config.write("pipelines/digits-mlp", "tenant: [vision\n")
    config.edit("pipelines/digits-own", "tenant: tabular", "tenant: tabula")
    files = {problem.split(":")[0] for problem in config.problems()}
    assert files == {
        "config/tenants/vision.yaml",
        "config/datasets/mnist5k.yaml",
        "config/pipelines/digits-mlp.yaml",
        "config/pipelines/digits-own.yaml",
    }


@pytest.mark.parametrize(
    ("case", "old", "new", "told"),
    [
        ("tenant", "tenant: vision", "tenant: visoin", "tenant = \"visoin\": there is no tenants/visoin.yaml; did you mean 'vision'?"),
        ("dataset", "dataset: mnist5k", "dataset: qqq", 'dataset = "qqq": there is no datasets/qqq.yaml; there are: digits, mnist5k'),
        ("zoo", "models.cnn:build", "models.cn:build", "is not a model of Trainyard's own; did you mean 'trainer.models.cnn:build'?"),
        ("shards", "workers: 2", "workers: 5", "gang.workers = 5: 5 workers, and dataset mnist5k has 4 shards"),
        ("steps", "gate:", "step_slots: 7\ngate:", "a step would take 7 slots; tenant vision has 6"),
    ],
)
def test_names_and_sums_between_files(config: Config, case: str, old: str, new: str, told: str) -> None:
    config.edit("pipelines/mnist-cnn", old, new)
    assert any(told in problem and problem.startswith("config/pipelines/mnist-cnn.yaml:") for problem in config.problems())


def test_more_slots_than_the_tenant_has_are_refused_with_the_arithmetic(config: Config) -> None:
    config.edit("tenants/vision", "slots: 6", "slots: 4")
    assert config.problem() == (
        "config/pipelines/mnist-cnn.yaml:15: gang: 2 workers × 1 + 2 PS × 1 + chief 1 = 5 slots; tenant vision has 4: "
        "lower the gang, or raise slots in tenants/vision.yaml"
    )


def test_a_gang_larger_than_its_block_of_ports_is_refused(config: Config) -> None:
    config.edit("clusters/embedded", "block: 64", "block: 4")
    assert "5 replicas, and a gang has 4 ports on cluster embedded" in config.problem()


def test_a_builder_that_does_not_exist_is_told_once_and_its_pipelines_are_not_blamed(config: Config) -> None:
    config.edit("datasets/digits", "digits:Digits", "digits:Digit")
    assert config.problem().startswith("config/datasets/digits.yaml:3: builder")


def test_a_file_that_is_wrong_does_not_make_those_that_name_it_wrong(config: Config) -> None:
    config.edit("tenants/vision", "slots: 6", "slotz: 6")
    assert {problem.split(":")[0] for problem in config.problems()} == {"config/tenants/vision.yaml"}


def test_a_login_has_one_role(config: Config) -> None:
    config.edit("tenants/vision", "bob: user", "dave: user")
    assert "dave" in config.problem()
    assert "a login has one role" in config.problem()
    config.edit("tenants/vision", "dave: user", "dave: viewer")
    assert config.load().tenants["vision"].members["dave"] == "viewer"


def test_a_name_with_the_wrong_ending_is_not_passed_over_in_silence(config: Config) -> None:
    config.path("tenants/vision").rename(config.folder / "tenants" / "vision.yml")
    assert any("must end in .yaml" in problem for problem in config.problems())


class TestOneTenant:
    def test_it_sees_its_own_only(self, config: Config) -> None:
        view = load_tenant("tabular", config.folder, environ={})
        assert view.problems == ()
        assert set(view.settings.tenants) == {"tabular"}
        assert set(view.settings.pipelines) == {"digits-own"}
        assert set(view.settings.datasets) == {"digits"}

    def test_a_broken_pipeline_of_another_tenant_takes_nothing_away(self, config: Config) -> None:
        config.edit("pipelines/digits-own", "workers: 1", "workers: many")
        config.write("tenants/broken", "slots: [")
        view = load_tenant("vision", config.folder, environ={})
        assert set(view.settings.pipelines) == {"digits-mlp", "mnist-cnn"}
        assert view.problems == ()

    def test_its_own_broken_pipeline_leaves_the_good_ones(self, config: Config) -> None:
        config.edit("pipelines/mnist-cnn", "epochs: 8", "epochs: 0")
        view = load_tenant("vision", config.folder, environ={})
        assert set(view.settings.pipelines) == {"digits-mlp"}
        assert len(view.problems) == 1
        assert "training.epochs = 0" in view.problems[0]

    def test_a_broken_dataset_takes_its_pipelines_only(self, config: Config) -> None:
        config.edit("datasets/mnist5k", "shards: 4", "shards: 0")
        view = load_tenant("vision", config.folder, environ={})
        assert set(view.settings.pipelines) == {"digits-mlp"}
        assert len(view.problems) == 1
        assert load_tenant("tabular", config.folder, environ={}).problems == ()

    def test_a_file_that_is_not_even_yaml_is_told_to_the_tenant_it_names(self, config: Config) -> None:
        config.write("pipelines/mnist-cnn", "tenant: vision\nmodel: {build: [\n")
        assert len(load_tenant("vision", config.folder, environ={}).problems) == 1
        assert load_tenant("tabular", config.folder, environ={}).problems == ()

    def test_a_file_that_names_nobody_is_told_to_everybody(self, config: Config) -> None:
        config.write("pipelines/mnist-cnn", "{[")
        assert len(load_tenant("vision", config.folder, environ={}).problems) == 1
        assert len(load_tenant("tabular", config.folder, environ={}).problems) == 1

    def test_without_a_usable_file_of_its_own_there_is_nothing_to_make(self, config: Config) -> None:
        config.edit("tenants/vision", "slots: 6", "slots: 0")
        with pytest.raises(ConfigError, match="slots = 0"):
            load_tenant("vision", config.folder, environ={})
        with pytest.raises(ConfigError, match=r"tenants/vison.yaml: does not exist; did you mean 'vision'"):
            load_tenant("vison", config.folder, environ={})


@pytest.mark.parametrize(
    ("stray", "told"),
    [
        ("pipeline/mine.yaml", "config/pipeline/: is not read: unknown folder; did you mean 'pipelines'?"),
        ("dataset/mine.yml", "config/dataset/: is not read: unknown folder; did you mean 'datasets'?"),
        ("pipelines/vision/mine.yaml", "config/pipelines/vision/: is not read: put its files into config/pipelines/ itself"),
        ("mine.yaml", "config/mine.yaml: is not read: put it into one of tenants/, datasets/, pipelines/, clusters/"),
    ],
)
def test_yaml_where_nothing_is_read_is_told_and_takes_nothing_away(config: Config, stray: str, told: str) -> None:
    path = config.folder / stray
    path.parent.mkdir(exist_ok=True)
    path.write_text("tenant: vision\n")
    assert config.problem() == told
    view = load_tenant("vision", config.folder, environ={})
    assert view.problems == (told,)
    assert set(view.settings.pipelines) == {"digits-mlp", "mnist-cnn"}


def test_what_is_no_yaml_may_lie_anywhere(config: Config) -> None:
    (config.folder / "README.md").write_text("ours")
    for folder, name in (("notes", "a.md"), ("..2026_01_01", "a.yaml"), ("schemas", "a.json"), ("pipelines/.old", "a.yaml")):
        (config.folder / folder).mkdir(exist_ok=True)
        (config.folder / folder / name).write_text("ours")
    config.load()


@pytest.mark.parametrize(
    ("line", "parsed"),
    [
        ("tenant: vision", False),
        ("tenant: vision  # theirs", False),
        ('tenant: "vision"', False),
        ("tenant: 'vision'\r", False),
        ("tenant: tabular", True),
        ("tenant: nobody", True),
        ("tenant: vision#1", True),
        ("tenant:", True),
        ('"tenant": vision', True),
        ("tenant: vision\ntenant: tabular", True),
        ("tenant: &a vision", True),
    ],
)
def test_a_tenant_s_view_parses_no_pipeline_that_is_plainly_another_s(
    config: Config, monkeypatch: pytest.MonkeyPatch, line: str, parsed: bool
) -> None:
    """Whatever could be the tenant's own, or nobody's, is."""
    seen: list[str] = []
    read = loading.read_document
    monkeypatch.setattr(loading, "read_document", lambda path, file: (seen.append(path.stem), read(path, file))[1])
    config.edit("pipelines/digits-mlp", "tenant: vision\n", f"{line}\n")
    load_tenant("tabular", config.folder, environ={})
    assert ("digits-mlp" in seen) is parsed
    assert "digits-own" in seen
