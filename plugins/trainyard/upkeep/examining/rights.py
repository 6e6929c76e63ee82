"""Whether we may do what must be done: each verb asked of the API server itself (SelfSubjectAccessReview), before anything relies on it.

Two identities are asked about: that of whoever examines, who needs a namespace with pods, and that of Airflow's processes.
https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kubernetes import client as k8s

from trainyard.contract import names
from trainyard.kube.client import ask
from trainyard.upkeep.examining.finding import Finding, absent, well, wrong
from trainyard.upkeep.examining.patient import Patient


@dataclass(frozen=True)
class Rule:
    """Verbs on one resource."""

    group: str
    resource: str
    """``pods`` or, for a subresource, ``pods/log``."""
    verbs: tuple[str, ...]


IN_A_TENANT: Final = (
    # Steps by Airflow's KubernetesPodOperator, which labels (patch) a pod that it has dealt with; a gang's watch and take-down.
    Rule("", "pods", ("create", "get", "list", "patch", "delete")),
    Rule("", "pods/log", ("get",)),
    # A pod on a dead node is declared failed, so that its Job replaces it.
    Rule("", "pods/status", ("patch",)),
    Rule("", "events", ("list",)),
    Rule("", "resourcequotas", ("list",)),
    Rule("", "services", ("create", "get", "list", "delete")),
    Rule("batch", "jobs", ("create", "get", "list", "delete")),
    Rule("networking.k8s.io", "networkpolicies", ("create", "get", "list", "delete")),
    # One gang of a tenant at a time is created.
    Rule("coordination.k8s.io", "leases", ("create", "get", "update")),
)
"""What the operators do in a tenant's namespace."""
IN_THE_PLATFORM: Final = (
    Rule("", "pods", ("create", "get", "list", "patch", "delete")),
    Rule("", "pods/log", ("get",)),
    Rule("", "events", ("list",)),
)
"""The same for ``clean_up``'s pods."""
EVERYWHERE: Final = (Rule("batch", "jobs", ("list",)),)
"""Where gangs share ports, each looks which blocks the others have, in all namespaces."""

TO_EXAMINE: Final = (
    Rule("", "namespaces", ("create", "list", "delete")),
    Rule("", "serviceaccounts", ("create",)),
    Rule("", "secrets", ("create", "get")),
    Rule("", "configmaps", ("create",)),
    Rule("", "services", ("create",)),
    Rule("", "pods", ("create", "get")),
    Rule("", "pods/log", ("get",)),
    Rule("", "nodes", ("list",)),
    Rule("batch", "jobs", ("create",)),
    Rule("networking.k8s.io", "networkpolicies", ("create",)),
)
"""What the examination itself does; cluster-wide, since its namespace has no roles of its own."""


def missing(api: k8s.ApiClient, rules: Iterable[Rule], namespace: str | None, user: str | None = None) -> list[str]:
    """The verbs of these rules that may not be done.

    Args:
        api: who asks.
        rules: what is asked about.
        namespace: where; None: in all of them.
        user: about whom; None: whoever asks.

    Raises:
        UnavailableError: the API server does not answer.
        kubernetes.client.ApiException: who asks may not ask about another.
    """
    authorization = k8s.AuthorizationV1Api(api)
    ask_for = authorization.create_subject_access_review if user else authorization.create_self_subject_access_review
    kind = "SubjectAccessReview" if user else "SelfSubjectAccessReview"
    found = []
    for rule in rules:
        resource, _, subresource = rule.resource.partition("/")
        refused = []
        for verb in rule.verbs:
            attributes = {"group": rule.group, "resource": resource, "subresource": subresource, "verb": verb, "namespace": namespace or ""}
            spec = {"resourceAttributes": attributes} | ({"user": user} if user else {})
            review = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
            if not ask(ask_for, review).status.allowed:
                refused.append(verb)
        if refused:
            found.append(f"{', '.join(refused)} {rule.resource}")
    return found


def ours(patient: Patient) -> Iterator[Finding]:
    """Whether the examination can be made with this kubeconfig."""
    lacking = missing(patient.api, TO_EXAMINE, None)
    if lacking:
        saw = f"this identity may not {'; '.join(lacking)} in all namespaces"
        yield wrong(saw, "examine with an administrator's: --kubeconfig FILE")
    else:
        yield well("namespaces, pods, Jobs and policies may be made and removed")


def airflow(patient: Patient) -> Iterator[Finding]:
    """Whether Airflow's identity may do what its operators do, in each namespace of ours that is there."""
    if patient.airflow_kubeconfig is not None:
        api, user, whose = patient.airflow_api, None, patient.airflow_kubeconfig
    else:  # Airflow runs in the cluster, as the ServiceAccount of deploy/rbac
        api, user = patient.api, f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:{names.SERVICE_ACCOUNT_RUN}"
        whose = user
    there = {item.metadata.name for item in ask(patient.core.list_namespace).items}
    places: list[tuple[str, tuple[Rule, ...]]] = [(names.namespace(tenant), IN_A_TENANT) for tenant in patient.settings.tenants]
    places = [(namespace, rules) for namespace, rules in [*places, (names.PLATFORM_NAMESPACE, IN_THE_PLATFORM)] if namespace in there]
    if not places:
        yield absent("no namespace of ours is there yet: its Roles come with them")
        return
    lacking = [f"{'; '.join(verbs)} in {namespace}" for namespace, rules in places if (verbs := missing(api, rules, namespace, user))]
    if patient.settings.cluster.ports is not None and (verbs := missing(api, EVERYWHERE, None, user)):
        lacking.append(f"{'; '.join(verbs)} in all namespaces")
    if lacking:
        todo = "kubectl apply -f deploy/rbac (where gangs share ports, deploy/rbac/optional/ports.yaml too), then `trainyard sync`"
        yield wrong(f"Airflow's identity ({whose}) may not {', nor '.join(lacking)}", todo)
    else:
        yield well(f"Airflow's identity ({whose}) may do all that its operators do, in {', '.join(name for name, _ in places)}")
