"""What a container is told: environment, downward API, secrets, config maps, volumes, tokens, working directory."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from kubernetes import client

from tests.cluster.support import Json, Namespace, ended, running, script, state, terminated, waiting_reason


def output(namespace: Namespace, *containers: Json, **spec: Any) -> str:
    """Run a pod to its good end; its first container's log."""
    name = namespace.create(*containers, **spec)
    pod = namespace.wait_for(name, ended)
    assert pod["status"]["phase"] == "Succeeded", f"{pod['status']}\n{namespace.logs(name)}"
    return namespace.logs(name)


def test_values_and_references_to_others(namespace: Namespace) -> None:
    env = [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A)/$(MISSING)/$$(A)/$$"},
        {"name": "C", "value": "$(B)"},
    ]
    text = output(
        namespace, namespace.container(script('echo "$B"; echo "$C"; echo "$0"; echo "$1"'), env=env, args=["zero-$(A)", "$(NOPE)"])
    )
    assert text == "1/$(MISSING)/$(A)/$\n1/$(MISSING)/$(A)/$\nzero-1\n$(NOPE)\n"


def test_only_what_is_declared_is_seen(namespace: Namespace) -> None:
    text = output(namespace, namespace.container(script("env"), env=[{"name": "MINE", "value": "x"}]))
    seen = {line.split("=", 1)[0] for line in text.splitlines()}
    assert {"MINE", "PATH", "HOME", "HOSTNAME", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"} <= seen
    for foreign in ("KUBECONFIG", "USER", "VIRTUAL_ENV", "PYTEST_CURRENT_TEST", "LS_COLORS", "TRAINYARD_STATE"):
        assert foreign not in seen
    if namespace.profile.embedded:
        known = {"MINE", "PATH", "HOME", "HOSTNAME", "PWD", "SHLVL", "_", "PYTHONUNBUFFERED", "TRAINYARD_TERMINATION_LOG"}
        assert {name for name in seen - known if not name.startswith("KUBERNETES_")} == set()


def test_the_downward_api_in_variables(namespace: Namespace) -> None:
    fields = {
        "NAME": "metadata.name",
        "NAMESPACE": "metadata.namespace",
        "UID": "metadata.uid",
        "LABEL": "metadata.labels['team']",
        "NOTE": "metadata.annotations['trainyard.dev/note']",
        "NODE": "spec.nodeName",
        "ACCOUNT": "spec.serviceAccountName",
        "ADDRESS": "status.podIP",
        "HOST": "status.hostIP",
    }
    env = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]
    resources = {
        "CPU": {"resource": "limits.cpu", "divisor": "1m"},
        "CORES": {"resource": "limits.cpu"},
        "MEMORY": {"resource": "limits.memory"},
        "MEBI": {"resource": "requests.memory", "divisor": "1Mi"},
    }
    env += [{"name": name, "valueFrom": {"resourceFieldRef": reference}} for name, reference in resources.items()]
    name = namespace.create(
        namespace.container(
            script(" ".join(["echo", *(f"${key}" for key in [*fields, *resources])])),
            env=env,
            resources={"limits": {"cpu": "250m", "memory": "64Mi"}, "requests": {"memory": "32Mi"}},
        ),
        metadata={"labels": {"team": "vision"}, "annotations": {"trainyard.dev/note": "one"}},
    )
    pod = namespace.wait_for(name, ended)
    expected = [name, namespace.name, pod["metadata"]["uid"], "vision", "one", pod["spec"]["nodeName"], "default"]
    expected += [pod["status"]["podIP"], pod["status"]["hostIP"], "250", "1", str(64 << 20), "32"]
    assert namespace.logs(name).split() == expected


def test_secrets_and_config_maps_in_variables(namespace: Namespace) -> None:
    namespace.core.create_namespaced_secret(namespace.name, {"metadata": {"name": "keys"}, "stringData": {"key": "s3cr3t", "other": "o"}})
    namespace.core.create_namespaced_config_map(
        namespace.name, {"metadata": {"name": "settings"}, "data": {"LEVEL": "info", "MODE": "map"}}
    )
    env = [
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "key"}}},
        {"name": "LEVEL", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "LEVEL"}}},
        {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "absent", "key": "x", "optional": True}}},
        {"name": "MODE", "value": "env"},
    ]
    source = [
        {"configMapRef": {"name": "settings"}},
        {"prefix": "SECRET_", "secretRef": {"name": "keys"}},
        {"configMapRef": {"name": "absent", "optional": True}},
    ]
    text = output(namespace, namespace.container(script("echo $KEY $LEVEL ${NONE-unset} $MODE $SECRET_other"), env=env, envFrom=source))
    assert text == "s3cr3t info unset env o\n"


def waits_for_configuration(namespace: Namespace, name: str, message: str) -> Json:
    """Until the pod waits with this message: a busy kubelet may say first that it has not seen the Secret yet."""
    return namespace.wait_for(
        name, lambda pod: waiting_reason(pod) == "CreateContainerConfigError" and state(pod)["waiting"]["message"] == message
    )


def test_a_missing_secret_is_waited_for(namespace: Namespace) -> None:
    env = [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "late", "key": "key"}}}]
    name = namespace.create(namespace.container(script("echo $KEY"), env=env))
    pod = waits_for_configuration(namespace, name, 'secret "late" not found')
    assert pod["status"]["phase"] == "Pending"
    namespace.core.create_namespaced_secret(namespace.name, {"metadata": {"name": "late"}, "stringData": {"key": "here"}})
    namespace.wait_for(name, ended, within=60)
    assert namespace.logs(name) == "here\n"


def test_a_missing_key_is_named(namespace: Namespace) -> None:
    namespace.core.create_namespaced_secret(namespace.name, {"metadata": {"name": "partial"}, "stringData": {"one": "1"}})
    env = [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "partial", "key": "two"}}}]
    name = namespace.create(namespace.container(script("true"), env=env))
    waits_for_configuration(namespace, name, f"couldn't find key two in Secret {namespace.name}/partial")


def test_secrets_and_config_maps_as_files(namespace: Namespace) -> None:
    binary = base64.b64encode(bytes(range(256))).decode()
    namespace.core.create_namespaced_secret(
        namespace.name, {"metadata": {"name": "files"}, "data": {"blob": binary}, "stringData": {"text": "t"}}
    )
    namespace.core.create_namespaced_config_map(namespace.name, {"metadata": {"name": "more"}, "data": {"a": "A", "b": "B"}})
    text = output(
        namespace,
        namespace.container(
            script("ls $S; wc -c < $S/blob; cat $C/deep/a; ls $C; stat -L -c %a $S/text; cat $P/a $P/text"),
            env=[{"name": "S", "value": "/secret"}, {"name": "C", "value": "/config"}, {"name": "P", "value": "/both"}],
            volumeMounts=[
                {"name": "secret", "mountPath": "/secret", "readOnly": True},
                {"name": "config", "mountPath": "/config"},
                {"name": "both", "mountPath": "/both"},
            ],
        ),
        volumes=[
            {"name": "secret", "secret": {"secretName": "files", "defaultMode": 0o440}},
            {"name": "config", "configMap": {"name": "more", "items": [{"key": "a", "path": "deep/a"}]}},
            {"name": "both", "projected": {"sources": [{"secret": {"name": "files"}}, {"configMap": {"name": "more"}}]}},
        ],
    )
    assert text.split() == ["blob", "text", "256", "Adeep", "440", "At"]


def test_a_volume_of_a_missing_secret_keeps_the_pod_waiting(namespace: Namespace) -> None:
    name = namespace.create(
        namespace.container(script("cat $S/key"), env=[{"name": "S", "value": "/s"}], volumeMounts=[{"name": "s", "mountPath": "/s"}]),
        volumes=[{"name": "s", "secret": {"secretName": "comes-late"}}],
    )
    pod = namespace.wait_for(name, lambda pod: waiting_reason(pod) == "ContainerCreating")
    assert pod["status"]["phase"] == "Pending"
    namespace.core.create_namespaced_secret(namespace.name, {"metadata": {"name": "comes-late"}, "stringData": {"key": "k"}})
    namespace.wait_for(name, ended, within=120)
    assert namespace.logs(name) == "k"


def test_the_downward_api_in_files(namespace: Namespace) -> None:
    items = [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "cpu", "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu", "divisor": "1m"}},
    ]
    text = output(
        namespace,
        namespace.container(
            script("cat labels; echo; cat cpu"),
            workingDir="/about",
            volumeMounts=[{"name": "about", "mountPath": "/about"}],
            resources={"limits": {"cpu": "100m"}},
        ),
        volumes=[{"name": "about", "downwardAPI": {"items": items}}],
        metadata={"labels": {"b": "2", "a": "1"}},
    )
    assert text == 'a="1"\nb="2"\n100'


def test_containers_share_an_empty_dir(namespace: Namespace) -> None:
    mount: Json = {"volumeMounts": [{"name": "work", "mountPath": "/work"}]}
    text = output(
        namespace,
        namespace.container(script("until test -s shared; do sleep 0.1; done; cat shared; pwd"), workingDir="/work", **mount),
        namespace.container(
            script("printf hello > $OUT.new && mv $OUT.new $OUT"), "writer", env=[{"name": "OUT", "value": "/work/shared"}], **mount
        ),
        volumes=[{"name": "work", "emptyDir": {}}],
    )
    assert text.startswith("hello/")


def test_a_mounted_path_in_command_and_arguments(namespace: Namespace) -> None:
    reads = [{"name": "work", "mountPath": "/work"}, {"name": "sub", "mountPath": "/sub", "subPath": "inner"}]
    writes = [{"name": "work", "mountPath": "/work"}, {"name": "sub", "mountPath": "/all"}]
    write = script('echo one > "$0"; mkdir -p "$1/inner"; echo two > "$1/inner/file"')
    text = output(
        namespace,
        namespace.container(["cat"], args=["/work/file", "/sub/file"], volumeMounts=reads),
        initContainers=[namespace.container(write, "first", args=["/work/file", "/all"], volumeMounts=writes)],
        volumes=[{"name": "work", "emptyDir": {}}, {"name": "sub", "emptyDir": {}}],
    )
    assert text == "one\ntwo\n"


def test_an_empty_dir_over_its_size_limit_is_evicted(namespace: Namespace) -> None:
    if not namespace.profile.evicts_full_volumes:
        pytest.skip("this cluster's kubelets do not look at the size of volumes (profile: evicts_full_volumes)")
    name = namespace.create(
        namespace.container(
            script("dd if=/dev/zero of=big bs=1M count=8 2>/dev/null; sync; sleep 120"),
            workingDir="/scratch",
            volumeMounts=[{"name": "scratch", "mountPath": "/scratch"}],
        ),
        volumes=[{"name": "scratch", "emptyDir": {"sizeLimit": "4Mi"}}],
    )
    pod = namespace.wait_for(name, ended, within=90)
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "Evicted")
    assert "scratch" in pod["status"]["message"]


def test_a_working_directory_of_its_own(namespace: Namespace) -> None:
    text = output(namespace, namespace.container(script("pwd; echo x > here && cat here"), workingDir="/tmp/own/place"))
    where, wrote = text.split()
    assert where.endswith("/tmp/own/place")
    assert wrote == "x"


def test_a_service_account_token_that_the_api_server_takes(namespace: Namespace) -> None:
    reader = (
        "import json, os, ssl, urllib.request\n"
        "folder = os.environ['TOKENS']\n"
        "read = lambda name: open(os.path.join(folder, name)).read()\n"
        "where = 'https://' + os.environ['KUBERNETES_SERVICE_HOST'] + ':' + os.environ['KUBERNETES_SERVICE_PORT']\n"
        "body = json.dumps({'apiVersion': 'authentication.k8s.io/v1', 'kind': 'SelfSubjectReview'}).encode()\n"
        "headers = {'Authorization': 'Bearer ' + read('token'), 'Content-Type': 'application/json'}\n"
        "request = urllib.request.Request(where + '/apis/authentication.k8s.io/v1/selfsubjectreviews', body, headers)\n"
        "context = ssl.create_default_context(cafile=os.path.join(folder, 'ca.crt'))\n"
        "print(json.load(urllib.request.urlopen(request, context=context))['status']['userInfo']['username'])\n"
        "print(read('namespace'))\n"
    )
    text = output(
        namespace,
        namespace.container(["python3", "-c", reader], env=[{"name": "TOKENS", "value": "/var/run/secrets/kubernetes.io/serviceaccount"}]),
        automountServiceAccountToken=True,
    )
    assert text.split() == [f"system:serviceaccount:{namespace.name}:default", namespace.name]


def test_the_host_name(namespace: Namespace) -> None:
    assert output(namespace, namespace.container(script("echo $HOSTNAME")), hostname="ps-0", subdomain="gang") == "ps-0\n"


def test_an_image_without_a_command_runs_its_entry_point(namespace: Namespace) -> None:
    """The profile's image has none or an interpreter: either way the arguments reach what the image runs."""
    if not namespace.profile.embedded:
        return
    text = output(namespace, {"name": "main", "image": namespace.profile.image, "args": ["-c", "echo by the entry point"]})
    assert text == "by the entry point\n"


def test_a_large_environment(namespace: Namespace) -> None:
    """A run spec is passed in a variable, so a hundred kilobytes must arrive whole."""
    document = json.dumps({"text": "äöü" * 20_000}, ensure_ascii=False)
    namespace.core.create_namespaced_config_map(namespace.name, {"metadata": {"name": "large"}, "data": {"spec": document}})
    env = [{"name": "SPEC", "valueFrom": {"configMapKeyRef": {"name": "large", "key": "spec"}}}]
    name = namespace.create(namespace.container(["python3", "-c", "import os, sys; sys.exit(len(os.environb[b'SPEC']) % 251)"], env=env))
    pod = namespace.wait_for(name, ended)
    assert terminated(pod)["exitCode"] == len(document.encode()) % 251


def test_stdin_is_empty(namespace: Namespace) -> None:
    assert output(namespace, namespace.container(script("wc -c"))).strip() == "0"


def test_two_pods_of_one_name_in_two_namespaces(namespace: Namespace, own_namespace: Namespace) -> None:
    for place in (namespace, own_namespace):
        place.create(place.container(script(f"echo {place.name}; sleep 60")), metadata={"name": "twin"})
    for place in (namespace, own_namespace):
        place.wait_for("twin", lambda pod, place=place: running(pod) and place.logs("twin") == f"{place.name}\n")  # type: ignore[misc]


def test_requests_hold_a_place_in_the_scheduler(namespace: Namespace) -> None:
    nodes = client.CoreV1Api(namespace.api).list_node().items
    cpus = max(int(node.status.allocatable["cpu"].rstrip("m")) for node in nodes)
    name = namespace.create(namespace.container(script("true"), resources={"requests": {"cpu": str(cpus + 1)}}))
    pod = namespace.wait_for(
        name, lambda pod: any(item["reason"] == "Unschedulable" for item in pod["status"].get("conditions") or [] if "reason" in item)
    )
    assert "Insufficient cpu" in pod["status"]["conditions"][0]["message"]
