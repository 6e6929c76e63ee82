"""What replicas need of the network: names, connections from pod to pod, and a policy that keeps others out. Tried with two pods.

One listens as a replica does, behind a headless Service; the other resolves its name, connects, and goes on connecting while a policy is
made that lets nobody in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kubernetes import client as k8s

from trainyard.contract import names as contract
from trainyard.kube.client import ask
from trainyard.upkeep.examining import probe as in_pod
from trainyard.upkeep.examining.finding import Finding, absent, well, wrong
from trainyard.upkeep.examining.patient import Patient
from trainyard.upkeep.examining.probes import Probe

SERVICE: Final = "doctor"
SERVER: Final = "server"
CLIENT: Final = "client"
START_S: Final = 120.0
"""Also for a second pull, where the pods are on another node than the first ones."""
PART: Final = {f"{contract.LABEL_PREFIX}probe": "network"}
"""Both pods: they are spread over nodes by it, as replicas are."""
BEHIND: Final = {f"{contract.LABEL_PREFIX}probe-role": "server"}
"""The one that the policy is about."""


def names(patient: Patient) -> Iterator[Finding]:
    """A headless Service's name, from another pod. The two pods are made here; the checks that follow ask them further."""
    profile = patient.settings.cluster
    if profile.addressing == "host":
        yield absent("addressing is `host`: replicas find each other on 127.0.0.1, by port")
        return
    problem = _start(patient)
    if problem is not None:
        yield problem
        return
    client, name = patient.pods[CLIENT], f"{SERVER}.{SERVICE}"
    heard = patient.probes.hear(client, ("resolved", "unresolved"), in_pod.RESOLVE_S + 20)
    if heard is None:
        yield wrong(
            f"the pod that was to resolve {name} ended without a word: {client.end}", "look at the trainer image: does its python3 work?"
        )
    elif heard["step"] == "unresolved":
        asked = f" (it asked {heard['resolver']})" if heard.get("resolver") else ""
        saw = f"a pod on node {client.node} cannot resolve {name}, a headless Service's name: {heard['error']}{asked}"
        yield wrong(
            saw, "does the cluster's DNS run (kubectl -n kube-system get pods), and may pods ask it (policies on egress to port 53)?"
        )
    else:
        yield well(f"{name} resolves in a pod after {heard['seconds']:.0f} s")


def _start(patient: Patient) -> Finding | None:
    """Both pods, running; or why not."""
    probes, profile = patient.probes, patient.settings.cluster
    first, last = (profile.port, profile.port) if profile.ports is None else (profile.ports.first, profile.ports.last)
    assert first is not None
    assert last is not None
    service = {
        "metadata": {"name": SERVICE},
        "spec": {"clusterIP": "None", "selector": BEHIND, "publishNotReadyAddresses": True, "ports": [{"name": "probe", "port": last}]},
    }
    ask(patient.core.create_namespaced_service, probes.name, service)
    counts = patient.counts_scratch
    listening = ("listen", str(first), str(last))
    server = probes.start(
        SERVER, *listening, hostname=SERVER, subdomain=SERVICE, labels={**PART, **BEHIND}, spread_by=PART, counts_scratch=counts
    )
    patient.pods[SERVER] = server
    heard = probes.hear(server, ("listening", "no_port"), START_S)
    if heard is None:
        return wrong(f"the pod that was to listen does not: {_why(server)}", "see the lines above: nodes differ, or are full")
    if heard["step"] == "no_port":
        return wrong(f"no port of {first} to {last} is free on node {server.node}", f"{patient.profile_file}: ports: another range")
    arguments = ("reach", f"{SERVER}.{SERVICE}", str(server.pod.status.pod_ip), str(heard["port"]))
    client = probes.start(CLIENT, *arguments, labels=PART, spread_by=PART, counts_scratch=counts)
    patient.pods[CLIENT] = client
    if not probes.wait(client, lambda seen: seen.started, START_S):
        return wrong(f"the pod that was to connect does not start: {_why(client)}", "see the lines above: nodes differ, or are full")
    return None


def _why(pod: Probe) -> str:
    return pod.refusal or ": ".join(filter(None, pod.waits)) or (pod.end if pod.over else pod.phase)


def connections(patient: Patient) -> Iterator[Finding]:
    """From one pod to the other, by address: across nodes, where there are two."""
    if patient.settings.cluster.addressing == "host":
        yield absent("addressing is `host`: replicas connect on 127.0.0.1")
        return
    if CLIENT not in patient.pods:
        yield Finding("not_tried", "the two pods of `dns` did not start")
        return
    client, server = patient.pods[CLIENT], patient.pods[SERVER]
    way = f"from node {client.node} to node {server.node}" if client.node != server.node else f"within node {client.node}"
    heard = patient.probes.hear(client, ("reached", "unreached"), in_pod.CONNECT_S + 20)
    if heard is None or heard["step"] == "unreached":
        why = heard["error"] if heard else client.end
        todo = "does the pod network work between nodes (its agent's pods, firewalls), and does no policy of the cluster's forbid it?"
        yield wrong(f"no connection from pod to pod, {way}: {why}", todo)
    else:
        yield well(f"a pod connects to a pod, {way}, after {heard['seconds']:.0f} s")


def policy(patient: Patient) -> Iterator[Finding]:
    """A NetworkPolicy that lets nobody in must stand between the two pods that were connected a moment ago."""
    profile = patient.settings.cluster
    if profile.addressing == "host":
        yield absent("addressing is `host`: on 127.0.0.1 no policy stands between pods; whoever is on the node can connect")
        return
    if profile.pods.host_network:
        yield absent("pods.host_network: pods have their node's address, and no policy holds for it")
        return
    client, server = patient.pods[CLIENT], patient.pods[SERVER]
    body: dict[str, Any] = {
        "metadata": {"name": "nobody"},
        "spec": {"podSelector": {"matchLabels": BEHIND}, "policyTypes": ["Ingress"], "ingress": []},
    }
    ask(k8s.NetworkingV1Api(patient.api).create_namespaced_network_policy, patient.probes.name, body)
    heard = patient.probes.hear(client, ("walled", "open"), in_pod.WALL_S + 20)
    if patient.probes.look(server).over:
        yield wrong(f"the pod that was behind the policy ended meanwhile: {server.end}", "try again")
    elif heard is None:
        yield wrong(f"the pod that was to connect ended without a word: {client.end}", "try again")
    elif heard["step"] == "open":
        saw = f"a pod behind a policy that lets nobody in is reached for {heard['seconds']:.0f} s: NetworkPolicies are not enforced"
        todo = (
            "a gang's servers ask no one's name, and this is their only wall: use a network plugin that does (Calico, Cilium, kube-router)"
        )
        yield wrong(saw, todo)
    else:
        yield well(f"a policy that lets nobody in stands after {heard['seconds']:.0f} s ({heard['error']})")
