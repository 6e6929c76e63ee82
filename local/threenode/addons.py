"""What is in the cluster from its start: rights of its own parts, and CoreDNS. As manifests; no templating."""

from __future__ import annotations

import json
from collections.abc import Sequence

from local.threenode import images
from local.threenode.api import Document
from local.threenode.keys import CLIENTS, KUBELET_CLIENT
from local.threenode.plan import Plan

RBAC = "rbac.authorization.k8s.io"
DNS_NAMESPACE, DNS_NAME = "kube-system", "coredns"
DNS_TTL_S = 5
"""Also for a name that is not there yet: a replica that came early asks again after that."""


def role(name: str, *rules: tuple[str, Sequence[str], Sequence[str]]) -> Document:
    """A ClusterRole; a rule is (API group, resources, verbs)."""
    listed = [{"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)} for group, resources, verbs in rules]
    return {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": listed}


def binding(name: str, role_name: str, subject: Document) -> Document:
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role_name}
    metadata = {"name": name}
    return {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": metadata, "roleRef": reference, "subjects": [subject]}


def user(name: str) -> Document:
    return {"apiGroup": RBAC, "kind": "User", "name": name}


def rights() -> list[Document]:
    """Of the parts that run on nodes. flannel writes its lease on the Node; kube-router only reads."""
    see = ("get", "list", "watch")
    router = role(
        "trainyard:kube-router",
        ("", ("namespaces", "pods", "services", "nodes", "endpoints"), see),
        ("networking.k8s.io", ("networkpolicies",), see),
        ("discovery.k8s.io", ("endpointslices",), see),
        ("extensions", ("networkpolicies",), see),
    )
    flannel = role("trainyard:flannel", ("", ("nodes",), see), ("", ("nodes/status",), ("patch",)), ("", ("pods",), ("get",)))
    return [
        flannel,
        router,
        binding("trainyard:flannel", "trainyard:flannel", user(CLIENTS["flannel"][0])),
        binding("trainyard:kube-router", "trainyard:kube-router", user(CLIENTS["kube-router"][0])),
        binding("trainyard:kube-proxy", "system:node-proxier", user(CLIENTS["kube-proxy"][0])),
        binding("trainyard:apiserver-kubelet-client", "system:kubelet-api-admin", user(CLIENTS[KUBELET_CLIENT][0])),
    ]


def corefile(upstream: Sequence[str]) -> str:
    """CoreDNS' configuration. Names outside of the cluster go to `upstream` (addresses); with none they do not resolve."""
    lines = ["errors", "health", "ready"]
    lines.append(f"kubernetes cluster.local in-addr.arpa {{\n  pods insecure\n  ttl {DNS_TTL_S}\n }}")
    if upstream:
        lines.append(f"forward . {' '.join(upstream)}")
    lines.append(f"cache {DNS_TTL_S}")
    return ".:53 {\n" + "".join(f" {line}\n" for line in lines) + "}\n"


def dns(plan: Plan, upstream: Sequence[str]) -> list[Document]:
    labels = {"k8s-app": "kube-dns"}
    metadata = {"name": DNS_NAME, "namespace": DNS_NAMESPACE}
    text = corefile(upstream)
    container = {
        "name": "coredns",
        "image": images.COREDNS,
        "imagePullPolicy": "Never",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "livenessProbe": {"httpGet": {"path": "/health", "port": 8080}, "periodSeconds": 10, "failureThreshold": 3},
        "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "conf", "mountPath": "/etc/coredns", "readOnly": True}],
    }
    # A dead node takes five minutes to lose its pods: names must not be gone for that long.
    tolerations = [
        {"key": f"node.kubernetes.io/{trouble}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
        for trouble in ("not-ready", "unreachable")
    ]
    pod = {
        "metadata": {"labels": labels, "annotations": {"trainyard.dev/corefile": json.dumps(text)}},  # another one is another pod
        "spec": {
            "serviceAccountName": DNS_NAME,
            "priorityClassName": "system-cluster-critical",
            "dnsPolicy": "Default",
            "tolerations": tolerations,
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": labels},
                }
            ],
            "containers": [container],
            "volumes": [{"name": "conf", "configMap": {"name": DNS_NAME}}],
        },
    }
    see = role(
        "trainyard:coredns",
        ("", ("endpoints", "services", "pods", "namespaces"), ("list", "watch")),
        ("discovery.k8s.io", ("endpointslices",), ("list", "watch")),
    )
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
    replicas = min(2, plan.nodes)
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        see,
        binding("trainyard:coredns", "trainyard:coredns", {"kind": "ServiceAccount", **metadata}),
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"Corefile": text}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {**metadata, "labels": labels},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": DNS_NAMESPACE, "labels": labels},
            "spec": {"clusterIP": str(plan.dns), "selector": labels, "ports": ports},
        },
    ]
