"""What a tenant's pods may reach, as policies say it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from trainyard.contract import names
from trainyard.errors import ConfigError
from trainyard.settings import Settings
from trainyard.settings.network import Address, Destination, Network
from trainyard.upkeep.objects import Manifest
from trainyard.upkeep.policies import ApiServer, policies

API = ApiServer(("10.98.0.1", "172.31.254.1"), (443, 6443))
S3 = "http://172.31.254.1:8333"


def made(settings: Settings, endpoint: str | None = S3, tenant: str = "vision") -> dict[str, Manifest]:
    found = policies(settings, settings.tenants[tenant], s3_endpoint=endpoint, api_server=API)
    assert all(one["metadata"]["namespace"] == f"tenant-{tenant}" for one in found)
    return {one["metadata"]["name"]: one["spec"] for one in found}


def with_network(settings: Settings, **fields: Any) -> Settings:
    return dataclasses.replace(settings, cluster=settings.cluster.model_copy(update={"network": Network(**fields)}))


def with_egress(settings: Settings, dataset: str, *addresses: Address) -> Settings:
    changed = settings.datasets[dataset].model_copy(update={"egress": addresses})
    return dataclasses.replace(settings, datasets={**settings.datasets, dataset: changed})


def test_nobody_comes_in_and_out_go_names_and_s3s_own_port(settings: Settings) -> None:
    assert made(settings) == {
        "tenant": {
            "podSelector": {},
            "policyTypes": ["Ingress", "Egress"],
            "egress": [
                {
                    "to": [
                        {
                            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
                            "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
                        }
                    ],
                    "ports": [{"protocol": "TCP", "port": 53}, {"protocol": "UDP", "port": 53}],
                },
                {"to": [{"ipBlock": {"cidr": "172.31.254.1/32"}}], "ports": [{"protocol": "TCP", "port": 8333}]},
            ],
        }
    }


@pytest.mark.parametrize(("endpoint", "port"), [("https://s3.example.com", 443), ("http://s3:9000/", 9000), (None, 443)])
def test_where_s3_is_a_name_its_port_is_open_but_for_what_nobody_reaches(settings: Settings, endpoint: str | None, port: int) -> None:
    _, four, six = made(settings, endpoint)["tenant"]["egress"]
    assert four["to"] == [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16", "10.98.0.1/32", "172.31.254.1/32"]}}]
    assert six["to"] == [{"ipBlock": {"cidr": "::/0", "except": ["fe80::/10", "fd00:ec2::254/128"]}}]
    assert four["ports"] == six["ports"] == [{"protocol": "TCP", "port": port}]


def test_s3_in_the_cluster_is_named_by_its_pods(settings: Settings) -> None:
    there = Destination(namespace="storage", pod_labels={"app": "s3"}, ports=(8333,))
    _, s3 = made(with_network(settings, s3=(there,)))["tenant"]["egress"]
    assert s3["to"] == [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "storage"}},
            "podSelector": {"matchLabels": {"app": "s3"}},
        }
    ]


def test_what_a_dataset_declares_is_prepares_alone_and_its_tenants_alone(settings: Settings) -> None:
    declared = with_egress(settings, "mnist5k", Address(cidr="10.1.2.3/32", ports=(443, 8080)))
    assert set(made(declared)) == {"tenant", "step-prepare"}
    assert made(declared)["step-prepare"] == {
        "podSelector": {"matchLabels": {names.LABEL_STEP: "prepare"}},
        "policyTypes": ["Egress"],
        "egress": [
            {
                "to": [{"ipBlock": {"cidr": "10.1.2.3/32"}}],
                "ports": [{"protocol": "TCP", "port": 443}, {"protocol": "TCP", "port": 8080}],
            }
        ],
    }
    assert set(made(declared, tenant="tabular")) == {"tenant"}


def test_a_clusters_steps_reach_what_it_says_beside_what_datasets_declare(settings: Settings) -> None:
    site = with_network(settings, steps={"prepare": (Destination(cidr="10.2.0.0/16", ports=(80,)),), "plan": ()})
    both = made(with_egress(site, "digits", Address(cidr="10.1.2.3/32", ports=(443,))))
    assert set(both) == {"tenant", "step-prepare"}
    assert [rule["to"][0]["ipBlock"]["cidr"] for rule in both["step-prepare"]["egress"]] == ["10.2.0.0/16", "10.1.2.3/32"]


def test_a_range_that_holds_the_api_server_loses_it(settings: Settings) -> None:
    wide = made(with_egress(settings, "digits", Address(cidr="172.31.0.0/16", ports=(443,))))
    assert wide["step-prepare"]["egress"][0]["to"] == [{"ipBlock": {"cidr": "172.31.0.0/16", "except": ["172.31.254.1/32"]}}]


@pytest.mark.parametrize("cidr", ["172.31.254.1/32", "10.98.0.1/32"])
def test_the_api_server_itself_is_refused(settings: Settings, cidr: str) -> None:
    with pytest.raises(ConfigError, match=r"is the cluster's API server: no tenant's pod may reach it"):
        made(with_egress(settings, "digits", Address(cidr=cidr, ports=(80, 6443, 443))))


def test_a_policy_without_a_gang_opens_no_way_in(settings: Settings) -> None:
    declared = with_egress(settings, "mnist5k", Address(cidr="10.1.2.3/32", ports=(443,)))
    for spec in made(declared).values():
        assert "ingress" not in spec
