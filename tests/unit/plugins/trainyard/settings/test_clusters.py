"""A cluster profile's own rules: what a site may give every pod, and S3's addresses and authorities."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.plugins.trainyard.settings.conftest import Config
from trainyard.errors import ConfigError
from trainyard.settings.site_pods import SitePods

DNS = """\
addressing: dns
port: 2222
images: {trainer: "r:5000/trainer:1", airflow: "r:5000/airflow:1"}
s3: {mode: external, endpoint: "https://s3.example.com", bucket_prefix: site}
"""
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


def profile(config: Config, more: str = "", base: str = DNS) -> None:
    config.write("clusters/site", base + more)


def test_a_site_that_says_nothing_gives_nothing(config: Config) -> None:
    profile(config)
    found = config.load(TRAINYARD_CLUSTER="site").cluster
    assert found.pods == SitePods()
    assert (found.image_pull_secrets, found.s3.ca_bundle, found.s3.airflow_endpoint, found.s3.public_endpoint) == ((), None, None, None)


def test_everything_a_site_may_say(config: Config) -> None:
    profile(
        config,
        """\
image_pull_secrets: [registry]
pods:
  labels: {team: ml, example.com/cost-center: "42"}
  annotations: {sidecar.istio.io/inject: "false"}
  node_selector: {kubernetes.io/os: linux, pool: ""}
  tolerations:
    - {key: dedicated, value: ml, effect: NoSchedule}
    - {operator: Exists, effect: NoExecute, toleration_seconds: 30}
  priority_class_name: batch-low
  scheduler_name: volcano
""",
    )
    found = config.load(TRAINYARD_CLUSTER="site").cluster
    assert found.image_pull_secrets == ("registry",)
    assert found.pods.labels == {"team": "ml", "example.com/cost-center": "42"}
    assert [toleration.operator for toleration in found.pods.tolerations] == ["Equal", "Exists"]
    assert (found.pods.priority_class_name, found.pods.scheduler_name, found.pods.host_network) == ("batch-low", "volcano", False)


@pytest.mark.parametrize(
    ("section", "where", "message"),
    [
        ("{labels: {trainyard.dev/run: mine}}", 'pods.labels."trainyard.dev/run"', "is set by Trainyard"),
        ("{labels: {x.trainyard.dev/run: mine}}", 'pods.labels."x.trainyard.dev/run"', "is set by Trainyard"),
        ("{annotations: {trainyard.dev/first-port: '1'}}", 'pods.annotations."trainyard.dev/first-port"', "is set by Trainyard"),
        ("{labels: {app.kubernetes.io/managed-by: me}}", 'pods.labels."app.kubernetes.io/managed-by"', "choose a key of your own"),
        ("{labels: {dag_id: mine}}", "pods.labels.dag_id", "is set by Trainyard, Airflow or Kubernetes itself"),
        ("{labels: {batch.kubernetes.io/job-name: x}}", 'pods.labels."batch.kubernetes.io/job-name"', "is set by"),
        ("{labels: {'a b': x}}", "pods.labels.a b", "is no key that Kubernetes takes"),
        ("{labels: {team: 'a b'}}", "pods.labels.team", "is no value that a label may have"),
        ("{labels: {team: 3}}", "pods.labels.team", "must be text: put it in quotes"),
        ("{node_selector: {'/x': y}}", "pods.node_selector./x", "is no key that Kubernetes takes"),
        ("{tolerations: {key: a}}", "pods.tolerations", "must be a list"),
        ("{tolerations: [{key: a, efect: NoSchedule}]}", "pods.tolerations.0.efect", "unknown key; did you mean 'effect'?"),
        ("{tolerations: [{effect: NoSchedule}]}", "pods.tolerations.0", "needs operator: Exists"),
        ("{tolerations: [{key: a, operator: Exists, value: b}]}", "pods.tolerations.0", "Exists takes no value"),
        ("{tolerations: [{key: a, effect: NoSchedule, toleration_seconds: 3}]}", "pods.tolerations.0", "needs effect: NoExecute"),
        ("{priority_class_name: High}", "pods.priority_class_name", "lower-case letters, digits, dots and dashes"),
        ("{hostNetwork: true}", "pods.hostNetwork", "unknown key; did you mean 'host_network'?"),
        ("{host_network: 'yes'}", "pods.host_network", "must be true or false"),
    ],
)
def test_each_mistake_is_one_line_with_the_way_out(config: Config, section: str, where: str, message: str) -> None:
    profile(config, f"pods: {section}\n")
    problem = config.problem()
    assert problem.startswith("config/clusters/site.yaml:5: " + where)
    assert message in problem


def test_a_bucket_prefix_that_is_too_short_is_told_in_words(config: Config) -> None:
    profile(config, base=DNS.replace("bucket_prefix: site", "bucket_prefix: ml"))
    assert config.problem().endswith("use 3–20 lower-case letters, digits and dashes")


def test_pods_in_their_nodes_network_need_ports_of_their_own(config: Config) -> None:
    profile(config, "pods: {host_network: true}\n")
    assert "with pods.host_network needs ports" in config.problem()
    profile(config, "pods: {host_network: true}\n", DNS.replace("port: 2222", "ports: {first: 20000, last: 20999, block: 64}"))
    assert config.load(TRAINYARD_CLUSTER="site").cluster.pods.host_network


def test_an_environments_endpoint_is_the_pods_and_leaves_the_others(config: Config) -> None:
    base = DNS.replace("bucket_prefix", 'airflow_endpoint: "http://s3.internal:8333", public_endpoint: "https://s3.public", bucket_prefix')
    profile(config, base=base)
    s3 = config.load(TRAINYARD_CLUSTER="site", TRAINYARD_S3_ENDPOINT="http://172.31.255.1:8333").cluster.s3
    assert (s3.endpoint, s3.airflow_endpoint, s3.public_endpoint) == (
        "http://172.31.255.1:8333", "http://s3.internal:8333", "https://s3.public",
    )  # fmt: skip


class TestAuthorities:
    BASE = DNS.replace("bucket_prefix", "ca_bundle: site-ca.pem, bucket_prefix")

    def write(self, config: Config, text: str) -> Path:
        path = config.folder / "clusters" / "site-ca.pem"
        path.write_text(text, encoding="utf-8")
        return path

    def test_the_file_is_found_beside_the_profile(self, config: Config) -> None:
        path = self.write(config, CERTIFICATE)
        profile(config, base=self.BASE)
        assert config.load(TRAINYARD_CLUSTER="site").cluster.s3.ca_bundle == str(path)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (None, "cannot be read (No such file or directory): name a PEM file, relative to clusters/"),
            ("MIIB", "holds no certificate"),
            ("ü", "cannot be read (it is no text)"),
            (CERTIFICATE + "-----BEGIN PRIVATE KEY-----\n", "holds a private key"),
        ],
    )
    def test_what_is_no_bundle_is_refused(self, config: Config, text: str | None, message: str) -> None:
        if text is not None:
            self.write(config, text)
        profile(config, base=self.BASE)
        with pytest.raises(ConfigError) as caught:
            config.load(TRAINYARD_CLUSTER="site")
        (problem,) = caught.value.problems
        assert problem.startswith("config/clusters/site.yaml:4: s3.ca_bundle")
        assert message in problem
