"""What pods may be allowed to reach, and what nobody can allow them."""

from __future__ import annotations

import pytest

from tests.unit.plugins.trainyard.settings.conftest import Config

PROFILE = "clusters/embedded"
DATASET = "datasets/digits"


def add(config: Config, name: str, text: str) -> None:
    config.write(name, config.path(name).read_text(encoding="utf-8") + text)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("- {cidr: 169.254.169.254/32, ports: [80]}", "lies in 169.254.0.0/16, where a machine's own credentials are handed out"),
        ("- {cidr: 169.254.0.0/16, ports: [80]}", "lies in 169.254.0.0/16"),
        ('- {cidr: "fd00:ec2::254/128", ports: [80]}', "lies in fd00:ec2::254/128"),
        ("- {cidr: 10.1.2.3/8, ports: [80]}", "is no range of addresses (10.1.2.3/8 has host bits set): write it as 10.1.0.0/16"),
        ("- {cidr: example.com, ports: [80]}", "is no range of addresses"),
        ("- {cidr: 10.1.0.0/16, ports: []}", "must not be empty"),
        ("- {cidr: 10.1.0.0/16, ports: [70000]}", "must be 65535 or less"),
        ("- {cidr: 10.1.0.0/16}", "is missing"),
    ],
)
def test_what_a_dataset_may_not_ask_for(config: Config, line: str, complaint: str) -> None:
    add(config, DATASET, f"egress:\n  {line}\n")
    problem = config.problem()
    assert complaint in problem
    assert problem.startswith("config/datasets/digits.yaml:")
    assert "egress.0." in problem


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{ports: [80]}", "give either cidr (a range of addresses) or namespace (pods of the cluster)"),
        ("{cidr: 10.0.0.0/8, namespace: storage, ports: [80]}", "give either cidr"),
        ("{cidr: 10.0.0.0/8, pod_labels: {a: b}, ports: [80]}", "pod_labels choose pods of a namespace"),
        ("{namespace: storage, ports: [53], protocols: [ICMP]}", "must be 'TCP' or 'UDP'"),
    ],
)
def test_what_a_cluster_may_not_ask_for(config: Config, line: str, complaint: str) -> None:
    add(config, PROFILE, f"network:\n  steps:\n    prepare: [{line}]\n")
    assert complaint in config.problem()


def test_a_step_that_there_is_not(config: Config) -> None:
    add(config, PROFILE, "network:\n  steps:\n    preparing: [{cidr: 10.0.0.0/8, ports: [80]}]\n")
    assert "preparing" in config.problem()


def test_names_are_asked_of_the_clusters_own_servers_unless_it_says_otherwise(config: Config) -> None:
    (dns,) = config.load().cluster.network.dns
    assert (dns.namespace, dns.ports, dns.protocols) == ("kube-system", (53,), ("TCP", "UDP"))
    add(config, PROFILE, "network:\n  dns: [{namespace: openshift-dns, ports: [5353], protocols: [TCP, UDP]}]\n")
    assert [one.namespace for one in config.load().cluster.network.dns] == ["openshift-dns"]
