"""What is in the cluster from its start."""

from __future__ import annotations

import pytest

from local import rights
from local.threenode import addons, api
from local.threenode.keys import CLIENTS
from local.threenode.plan import Plan


def everything() -> list[api.Document]:
    return [*addons.rights(), *addons.dns(Plan(), ["192.0.2.53"])]


OF_TRAINYARD = {rights.RUN, rights.SYNC}
"""Their rights are deploy/rbac's, by ServiceAccount."""


def test_every_client_but_the_administrator_and_kubernetes_own_is_bound_to_a_role() -> None:
    bound = {one["subjects"][0]["name"] for one in everything() if one["kind"] == "ClusterRoleBinding"}
    known_to_kubernetes = {"system:kube-controller-manager", "system:kube-scheduler"}
    assert {user for user, group in CLIENTS.values() if group != "system:masters"} - known_to_kubernetes - OF_TRAINYARD <= bound


def test_bindings_name_roles_that_there_are() -> None:
    made = {one["metadata"]["name"] for one in everything() if one["kind"] == "ClusterRole"}
    for one in everything():
        if one["kind"] == "ClusterRoleBinding":
            role = one["roleRef"]["name"]
            assert role in made or role.startswith("system:")


def test_no_part_may_more_than_read_but_flannel_which_writes_its_lease_on_the_node() -> None:
    writing = {}
    for one in everything():
        for rule in one.get("rules", []):
            assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]
            if verbs := set(rule["verbs"]) - {"get", "list", "watch"}:
                writing[one["metadata"]["name"]] = (rule["resources"], verbs)
    assert writing == {"trainyard:flannel": (["nodes/status"], {"patch"})}


def test_everything_can_be_applied() -> None:
    paths = [rights.path_of(one) for one in everything()]
    assert len(set(paths)) == len(paths)
    assert "/apis/apps/v1/namespaces/kube-system/deployments/coredns" in paths


def test_names_outside_go_to_the_machines_servers_or_nowhere() -> None:
    assert " forward . 192.0.2.1 192.0.2.2\n" in addons.corefile(["192.0.2.1", "192.0.2.2"])
    assert "forward" not in addons.corefile([])
    assert addons.corefile([]).count("{") == addons.corefile([]).count("}")


@pytest.mark.parametrize(("nodes", "replicas"), [(1, 1), (2, 2), (5, 2)])
def test_dns_survives_a_node_where_there_are_two(nodes: int, replicas: int) -> None:
    (deployment,) = [one for one in addons.dns(Plan(nodes=nodes), []) if one["kind"] == "Deployment"]
    assert deployment["spec"]["replicas"] == replicas


def test_another_configuration_is_another_pod() -> None:
    def template(upstream: list[str]) -> object:
        return next(one for one in addons.dns(Plan(), upstream) if one["kind"] == "Deployment")["spec"]["template"]

    assert template([]) != template(["192.0.2.1"])
    assert template([]) == template([])
