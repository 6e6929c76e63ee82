"""What Kubernetes itself decides before a kubelet hears of a pod: quota, default limits, Pod Security; and Jobs over pods that end."""

from __future__ import annotations

import time

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tests.cluster.support import Json, Namespace, ended, script

SMALL: Json = {"resources": {"limits": {"memory": "64Mi", "cpu": "100m"}, "requests": {"memory": "64Mi", "cpu": "100m"}}}


def test_a_pod_over_the_quota_is_forbidden_and_an_ended_one_gives_its_share_back(own_namespace: Namespace) -> None:
    hard = {"limits.memory": "100Mi", "requests.memory": "100Mi"}
    own_namespace.core.create_namespaced_resource_quota(own_namespace.name, {"metadata": {"name": "tenant"}, "spec": {"hard": hard}})
    quota_is_watched(own_namespace)
    first = own_namespace.create(own_namespace.container(script("sleep 60"), **SMALL), terminationGracePeriodSeconds=1)
    with pytest.raises(ApiException) as refused:
        own_namespace.create(own_namespace.container(script("true"), **SMALL))
    assert refused.value.status == 403
    assert "exceeded quota: tenant, requested: limits.memory=64Mi,requests.memory=64Mi" in refused.value.body
    own_namespace.core.delete_namespaced_pod(first, own_namespace.name)
    own_namespace.wait_gone(first)
    second = own_namespace.create(own_namespace.container(script("true"), **SMALL))
    own_namespace.wait_for(second, ended)
    third = own_namespace.create(own_namespace.container(script("true"), **SMALL))
    own_namespace.wait_for(third, ended)


def quota_is_watched(namespace: Namespace) -> None:
    """A quota counts once the controller has worked out what is used."""
    name = "tenant"
    for _ in range(200):
        if namespace.core.read_namespaced_resource_quota(name, namespace.name).status.used:
            return
        time.sleep(0.1)
    raise AssertionError("the quota has no status: does the controller manager run?")


def test_default_limits(own_namespace: Namespace) -> None:
    limits = [{"type": "Container", "default": {"memory": "80Mi", "cpu": "200m"}, "defaultRequest": {"memory": "80Mi", "cpu": "100m"}}]
    own_namespace.core.create_namespaced_limit_range(own_namespace.name, {"metadata": {"name": "slot"}, "spec": {"limits": limits}})
    env = [{"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}}]
    for _ in range(50):  # the admission plugin hears of a new LimitRange a moment later
        name = own_namespace.create(own_namespace.container(script("echo $MEMORY"), env=env))
        if own_namespace.pod(name)["spec"]["containers"][0].get("resources", {}).get("limits"):
            break
    own_namespace.wait_for(name, ended)
    assert own_namespace.logs(name) == "80\n"


def test_pod_security(own_namespace: Namespace) -> None:
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    own_namespace.core.patch_namespace(own_namespace.name, label)
    with pytest.raises(ApiException) as refused:
        own_namespace.create(own_namespace.container(script("true")))
    assert refused.value.status == 403
    assert "violates PodSecurity" in refused.value.body
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True, "runAsUser": 1000}
    name = own_namespace.create(
        own_namespace.container(script("true"), securityContext={**security, "seccompProfile": {"type": "RuntimeDefault"}}),
    )
    assert own_namespace.wait_for(name, ended)["status"]["phase"] == "Succeeded"


def test_an_indexed_job(own_namespace: Namespace) -> None:
    template = {
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [own_namespace.container(script('echo "$HOSTNAME $JOB_COMPLETION_INDEX"'))],
        }
    }
    batch = client.BatchV1Api(own_namespace.api)
    spec = {"completions": 3, "parallelism": 3, "completionMode": "Indexed", "template": template}
    batch.create_namespaced_job(own_namespace.name, {"metadata": {"name": "gang"}, "spec": spec})
    own_namespace.kubectl("wait", "--for=condition=Complete", "job/gang", "--timeout=60s")
    pods = own_namespace.core.list_namespaced_pod(own_namespace.name, label_selector="job-name=gang").items
    assert sorted(own_namespace.logs(pod.metadata.name) for pod in pods) == [f"gang-{index} {index}\n" for index in range(3)]
    batch.delete_namespaced_job("gang", own_namespace.name, propagation_policy="Foreground")
    for pod in pods:
        own_namespace.wait_gone(pod.metadata.name)


def test_a_job_sees_why_its_pod_failed(own_namespace: Namespace) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [own_namespace.container(script("exit 42"))]}}
    rule = {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [42]}}
    batch = client.BatchV1Api(own_namespace.api)
    spec = {"template": template, "podFailurePolicy": {"rules": [rule]}, "backoffLimit": 5}
    batch.create_namespaced_job(own_namespace.name, {"metadata": {"name": "bad"}, "spec": spec})
    own_namespace.kubectl("wait", "--for=condition=Failed", "job/bad", "--timeout=60s")
    job = own_namespace.plain(batch.read_namespaced_job("bad", own_namespace.name))
    assert job["status"]["failed"] == 1
    assert "exit code 42" in job["status"]["conditions"][0]["message"]
