"""The gang's objects: who owns whom, who listens where, and what ends what."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from kubernetes import client as k8s

from tests.fixtures.run_spec import run_spec_document
from trainyard.contract import environment, names
from trainyard.contract.run_spec import RunSpec
from trainyard.kube import gang_manifests, quota
from trainyard.kube.gang_manifests import GangManifests, dns_addresses, gang_pods, host_addresses
from trainyard.kube.pod import Site
from trainyard.settings.site_pods import SitePods

IMAGE = Site("trainer:1", "IfNotPresent")
DNS_LABEL = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


def spec(**changes: Any) -> RunSpec:
    return RunSpec.model_validate(run_spec_document(**({"gang__workers": 3, "gang__parameter_servers": 2} | changes)))


def plain(thing: Any) -> Any:
    return k8s.ApiClient().sanitize_for_serialization(thing)


def manifests(run: RunSpec | None = None, *, dns: bool = False) -> GangManifests:
    run = run or spec()
    addresses = dns_addresses(run, 7, 2222) if dns else host_addresses(run, 21000)
    return gang_manifests.build(run, 7, addresses, IMAGE, spec_sha256="abc")


def test_sizes_come_from_the_spec() -> None:
    made = manifests()
    sizes = {job.metadata.name: (job.spec.completions, job.spec.parallelism) for job in (made.chief, *made.peers)}
    run = spec().run
    assert sizes == {f"{run}-g7-chief": (1, 1), f"{run}-g7-ps": (2, 2), f"{run}-g7-worker": (3, 3)}
    assert len(gang_pods(spec(), IMAGE)) == 6


def test_the_chiefs_job_is_the_root_of_all_others() -> None:
    made = manifests(dns=True)
    chief = k8s.V1Job(metadata=k8s.V1ObjectMeta(name="chief", uid="u-1"))
    owned = made.owned_by(chief)
    for thing in (owned.service, owned.policy, *owned.peers):
        (owner,) = plain(thing)["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("Job", "chief", "u-1")


def test_every_job_ends_by_itself() -> None:
    run = spec(training__deadline_s=500)
    made = manifests(run)
    assert made.chief.spec.active_deadline_seconds == 500
    assert made.chief.spec.backoff_limit == 0
    for job in (made.chief, *made.peers):
        assert job.spec.ttl_seconds_after_finished >= 60, "who comes late must find the Job"
        assert job.spec.active_deadline_seconds >= 500
        assert job.spec.suspend is None, "a suspended root gates nothing and stops the deadline's clock"
    for job in made.peers:
        assert (job.spec.max_failed_indexes, job.spec.backoff_limit_per_index) == (0, 3)


def test_user_errors_and_a_lost_chief_are_not_retried_and_evictions_are_not_counted() -> None:
    policy = plain(manifests().peers[0])["spec"]["podFailurePolicy"]["rules"]
    assert policy[0] == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert policy[1]["action"] == "FailJob"
    values = policy[1]["onExitCodes"]["values"]
    assert {40, 41, 42, 43, 46, 47} == set(values)
    assert values == sorted(values), "the API server refuses an unsorted list"


@pytest.mark.parametrize("dns", [True, False])
def test_addresses(dns: bool) -> None:
    made = manifests(dns=dns)
    (container,) = made.peers[1].spec.template.spec.containers
    told = {variable.name: variable.value for variable in container.env}
    gang = json.loads(told[environment.GANG])
    assert gang["generation"] == 7
    assert {role: len(addresses) for role, addresses in gang["addresses"].items()} == {"chief": 1, "ps": 2, "worker": 3}
    every = [address for addresses in gang["addresses"].values() for address in addresses]
    assert len(set(every)) == 6
    if dns:
        run = spec().run
        assert gang["addresses"]["ps"][1] == f"{run}-g7-ps-1.{run}-g7:2222"
        assert made.peers[1].spec.template.spec.subdomain == made.service.metadata.name  # type: ignore[union-attr]
    else:
        assert sorted(every) == [f"127.0.0.1:{port}" for port in range(21000, 21006)]
        assert made.chief.metadata.annotations[names.ANNOTATION_PORTS] == "21000"
        assert made.service is None


def test_the_service_shows_replicas_before_they_are_ready_and_the_policy_admits_the_gang_only() -> None:
    made = plain(manifests(dns=True).service)["spec"], plain(manifests(dns=True).policy)["spec"]
    service, policy = made
    assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True)
    assert policy["podSelector"]["matchLabels"] == service["selector"]
    ports = [{"port": 2222, "protocol": "TCP"}]
    members = [{"podSelector": {"matchLabels": service["selector"]}}]
    assert policy["ingress"] == [{"from": members, "ports": ports}]
    assert policy["egress"] == [{"to": members, "ports": ports}]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    pods = manifests(dns=True).chief.spec.template.metadata.labels
    assert service["selector"].items() <= pods.items()


def test_where_each_replica_has_a_port_of_its_own_the_policy_opens_the_gangs_and_no_other() -> None:
    policy = plain(manifests().policy)["spec"]
    assert policy["ingress"][0]["ports"] == policy["egress"][0]["ports"] == [{"port": 21000, "endPort": 21005, "protocol": "TCP"}]


def test_only_workers_ask_for_gpus() -> None:
    site = Site("i:1", "Never", gpu_resource="example.com/gpu")
    made = gang_manifests.build(spec(gang__worker_gpus=2), 7, host_addresses(spec(), 21000), site, spec_sha256="abc")
    asked = {}
    for role, job in zip(names.ROLES, (made.chief, *made.peers), strict=True):
        (container,) = job.spec.template.spec.containers
        assert container.resources.requests == container.resources.limits
        asked[role] = container.resources.limits.get("example.com/gpu")
    assert asked == {"chief": None, "ps": None, "worker": "2"}
    assert quota.demand(gang_pods(spec(gang__worker_gpus=2), site))["requests.example.com/gpu"] == 6


@pytest.mark.parametrize("generation", [1, 99_999])
def test_the_longest_names_are_names(generation: int) -> None:
    """kubeflow/trainer#1101: a name + its suffix was longer than 63 characters, and the job hung without pods."""
    run = names.run_name("p" * 40, "train_" + "t" * 200, "manual__" + "é" * 200)
    for role in names.ROLES:
        job = names.job_name(run, generation, role)
        # What Kubernetes adds: the index for a hostname, and five random characters for a pod.
        for name in (job, f"{job}-9999", f"{job}-9999-abcde"):
            assert DNS_LABEL.fullmatch(name), name


def test_jobs_and_pods_have_the_sites_labels_and_no_selector_does() -> None:
    site = Site("i:1", "Never", pods=SitePods(labels={"example.com/team": "ml"}, annotations={"example.com/note": "x"}))
    made = gang_manifests.build(spec(), 7, dns_addresses(spec(), 7, 2222), site, spec_sha256="abc")
    for job in (made.chief, *made.peers):
        for metadata in (job.metadata, job.spec.template.metadata):
            assert metadata.labels["example.com/team"] == "ml"
            assert metadata.annotations["example.com/note"] == "x"
        assert job.metadata.annotations[names.ANNOTATION_SPEC] == "abc"
        (spread,) = job.spec.template.spec.topology_spread_constraints
        assert "example.com/team" not in spread.label_selector.match_labels
    assert made.service is not None
    assert "example.com/team" not in made.service.spec.selector


def test_each_role_is_spread_over_the_nodes_by_itself() -> None:
    made = manifests(dns=True)
    for role, job in zip(names.ROLES, (made.chief, *made.peers), strict=True):
        (spread,) = job.spec.template.spec.topology_spread_constraints
        wanted = spread.label_selector.match_labels
        assert (wanted[names.LABEL_ROLE], wanted[names.LABEL_GENERATION]) == (role, "7")
        assert wanted.items() <= job.spec.template.metadata.labels.items()
        assert (spread.topology_key, spread.max_skew, spread.when_unsatisfiable) == ("kubernetes.io/hostname", 1, "ScheduleAnyway")


def test_names_with_ports_of_a_block_where_pods_share_their_nodes_network() -> None:
    addresses = dns_addresses(spec(), 7, 21000, shared=True)
    everything = (*addresses.chief, *addresses.ps, *addresses.worker)
    assert [int(address.rsplit(":", 1)[1]) for address in everything] == list(range(21000, 21006))
    assert all(f".{names.gang_name(spec().run, 7)}:" in address for address in everything)
    made = gang_manifests.build(spec(), 7, addresses, IMAGE, spec_sha256="abc")
    assert made.service is not None
    assert made.chief.metadata.annotations[names.ANNOTATION_PORTS] == "21000"
    assert made.chief.spec.template.spec.subdomain == made.service.metadata.name
