"""A pod's life as the API shows it: phases, conditions, exit codes, init containers, deadlines, and every way to end."""

from __future__ import annotations

import time

import pytest

from tests.cluster.support import (
    Json,
    Namespace,
    condition,
    ended,
    ready,
    running,
    script,
    state,
    terminated,
    waiting_reason,
)

IGNORES_TERM = 'trap "" TERM; echo ready; while :; do sleep 0.1; done'
SAYS_GOODBYE = 'trap "echo bye; exit 7" TERM; echo ready; while :; do sleep 0.1; done'


def test_a_pod_that_ends_well(namespace: Namespace) -> None:
    pod = namespace.run(script("echo hello"))
    assert pod["status"]["phase"] == "Succeeded"
    end = terminated(pod)
    assert (end["exitCode"], end["reason"]) == (0, "Completed")
    assert end["startedAt"] <= end["finishedAt"]
    assert pod["status"]["startTime"] <= end["startedAt"]
    assert condition(pod, "Ready")["status"] == "False"
    assert condition(pod, "Ready")["reason"] == "PodCompleted"
    assert condition(pod, "Initialized")["status"] == "True"
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0


@pytest.mark.parametrize(("command", "code"), [("exit 3", 3), ("exit 255", 255), ("kill -KILL $$; sleep 1", 137)])
def test_exit_codes(own_namespace: Namespace, command: str, code: int) -> None:
    # A container's first process cannot kill itself on a real cluster (PID namespace), so the signal goes to a child that is waited for.
    text = f'sh -c "{command}"; exit $?'.replace("$$", "\\$\\$")
    pod = own_namespace.run(script(text))
    assert pod["status"]["phase"] == "Failed"
    assert terminated(pod)["exitCode"] == code
    assert terminated(pod)["reason"] == "Error"
    assert condition(pod, "ContainersReady")["reason"] == "PodFailed"


def test_a_running_pod_is_ready(namespace: Namespace) -> None:
    pod = namespace.wait_for(namespace.create(namespace.container(script("sleep 60"))), ready)
    assert running(pod)
    assert "startedAt" in state(pod)["running"]
    status = pod["status"]["containerStatuses"][0]
    assert status["ready"] is True
    assert status["started"] is True
    assert pod["status"]["podIP"]
    assert pod["status"]["hostIP"]
    for kind in ("PodScheduled", "Initialized", "ContainersReady"):
        assert condition(pod, kind)["status"] == "True", kind


def test_a_command_that_does_not_exist(namespace: Namespace) -> None:
    pod = namespace.run(["no-such-program"])
    assert pod["status"]["phase"] == "Failed"
    assert terminated(pod)["exitCode"] in (127, 128)
    assert terminated(pod)["reason"] in ("StartError", "ContainerCannotRun")
    assert "no-such-program" in terminated(pod)["message"]


def test_several_containers(namespace: Namespace) -> None:
    name = namespace.create(
        namespace.container(script("sleep 2; exit 0"), "slow"),
        namespace.container(script("exit 4"), "quick"),
    )
    # One container still runs, so the pod does.
    pod = namespace.wait_for(name, lambda pod: running(pod) and "terminated" in state(pod, "quick"))
    assert "quick" in condition(pod, "Ready")["message"]
    pod = namespace.wait_for(name, ended)
    assert pod["status"]["phase"] == "Failed"
    assert (terminated(pod, "slow")["exitCode"], terminated(pod, "quick")["exitCode"]) == (0, 4)


def test_init_containers_run_in_order_and_before_the_others(namespace: Namespace) -> None:
    mount: Json = {"volumeMounts": [{"name": "data", "mountPath": "/data"}], "workingDir": "/data"}
    name = namespace.create(
        namespace.container(script("cat order"), **mount),
        initContainers=[
            namespace.container(script("sleep 1; echo first >> order"), "one", **mount),
            namespace.container(script("echo second >> order"), "two", **mount),
        ],
        volumes=[{"name": "data", "emptyDir": {}}],
    )
    pod = namespace.wait_for(name, lambda pod: "running" in state(pod, "one"))
    assert pod["status"]["phase"] == "Pending"
    assert waiting_reason(pod) == "PodInitializing"
    assert "one two" in condition(pod, "Initialized")["message"]
    pod = namespace.wait_for(name, ended)
    assert pod["status"]["phase"] == "Succeeded"
    assert namespace.logs(name) == "first\nsecond\n"
    assert terminated(pod, "one")["finishedAt"] <= terminated(pod, "two")["startedAt"]


def test_an_init_container_that_fails_ends_the_pod(namespace: Namespace) -> None:
    name = namespace.create(
        namespace.container(script("echo never")),
        initContainers=[namespace.container(script("exit 5"), "bad"), namespace.container(script("exit 0"), "after")],
    )
    pod = namespace.wait_for(name, ended)
    assert pod["status"]["phase"] == "Failed"
    assert terminated(pod, "bad")["exitCode"] == 5
    assert "waiting" in state(pod, "after")
    assert waiting_reason(pod) == "PodInitializing"
    assert condition(pod, "Initialized")["status"] == "False"


def test_the_active_deadline(namespace: Namespace) -> None:
    name = namespace.create(namespace.container(script(SAYS_GOODBYE)), activeDeadlineSeconds=2, terminationGracePeriodSeconds=5)
    pod = namespace.wait_for(name, ended)
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "DeadlineExceeded")
    assert "deadline" in pod["status"]["message"]
    assert terminated(pod)["exitCode"] == 7, "it had its TERM and its grace"


def test_a_container_over_its_memory_limit(namespace: Namespace) -> None:
    hungry = ["python3", "-c", "import time; held = b'x' * (400 << 20); print('not killed', flush=True); time.sleep(30)"]
    pod = namespace.run(hungry, resources={"limits": {"memory": "96Mi"}})
    assert pod["status"]["phase"] == "Failed"
    assert (terminated(pod)["exitCode"], terminated(pod)["reason"]) == (137, "OOMKilled")


def test_memory_of_children_counts(namespace: Namespace) -> None:
    child = "python3 -c \"import time; held = b'x' * (400 << 20); time.sleep(30)\""
    pod = namespace.run(script(f"{child} & wait $!; exit $?"), resources={"limits": {"memory": "96Mi"}})
    assert pod["status"]["phase"] == "Failed"
    # cgroup v1 kills the largest process only; its parent passes the code on, and the reason is then a matter of the runtime's version.
    assert terminated(pod)["exitCode"] == 137


def test_memory_below_the_limit_is_left_alone(namespace: Namespace) -> None:
    modest = ["python3", "-c", "import time; held = b'x' * (40 << 20); time.sleep(2); print('fine')"]
    pod = namespace.run(modest, resources={"limits": {"memory": "192Mi"}})
    assert pod["status"]["phase"] == "Succeeded"


def test_delete_gives_term_and_time(namespace: Namespace) -> None:
    name = namespace.create(namespace.container(script(SAYS_GOODBYE)))
    namespace.wait_for(name, lambda _: running(_) and "ready" in namespace.logs(name))
    namespace.core.delete_namespaced_pod(name, namespace.name, grace_period_seconds=20)
    assert namespace.wait_gone(name) < 15 * namespace.profile.patience, "it ended itself, so nobody waited for the grace period"


def test_delete_kills_what_ignores_term_after_the_grace(namespace: Namespace) -> None:
    name = namespace.create(namespace.container(script(IGNORES_TERM)))
    namespace.wait_for(name, lambda _: running(_) and "ready" in namespace.logs(name))
    namespace.core.delete_namespaced_pod(name, namespace.name, grace_period_seconds=3)
    took = namespace.wait_gone(name)
    assert took >= 2.5, "the grace period is the container's"


def test_delete_with_grace_0_removes_the_object_at_once(namespace: Namespace) -> None:
    name = namespace.create(namespace.container(script(IGNORES_TERM)))
    namespace.wait_for(name, lambda _: running(_) and "ready" in namespace.logs(name))
    namespace.core.delete_namespaced_pod(name, namespace.name, grace_period_seconds=0)
    assert namespace.wait_gone(name) < 5 * namespace.profile.patience
    # The name is free, and the new pod is another.
    namespace.create(namespace.container(script("echo second")), metadata={"name": name})
    namespace.wait_for(name, ended)
    assert namespace.logs(name) == "second\n"


def test_pods_deleted_while_they_start(namespace: Namespace) -> None:
    names = [namespace.create(namespace.container(script("sleep 60"))) for _ in range(8)]
    for index, name in enumerate(names):
        time.sleep(0.02 * index)
        namespace.core.delete_namespaced_pod(name, namespace.name, grace_period_seconds=1)
    for name in names:
        namespace.wait_gone(name)


def test_a_deleted_pod_with_a_finalizer_shows_how_it_ended(namespace: Namespace) -> None:
    name = namespace.create(namespace.container(script(SAYS_GOODBYE)), metadata={"finalizers": ["trainyard.dev/test"]})
    namespace.wait_for(name, lambda _: running(_) and "ready" in namespace.logs(name))
    namespace.core.delete_namespaced_pod(name, namespace.name)
    try:
        pod = namespace.wait_for(name, ended)
        assert (pod["status"]["phase"], terminated(pod)["exitCode"]) == ("Failed", 7)
    finally:
        namespace.core.patch_namespaced_pod(name, namespace.name, {"metadata": {"finalizers": None}})
    namespace.wait_gone(name)


def test_nothing_outlives_its_container(namespace: Namespace) -> None:
    """A container's end is the end of what it started, also of what left its session: nobody writes to the volume any more."""
    daemon = "setsid sh -c 'while :; do echo beat >> beats; sleep 0.1; done' </dev/null >/dev/null 2>&1 &"
    mount: Json = {"volumeMounts": [{"name": "data", "mountPath": "/data"}], "workingDir": "/data"}
    name = namespace.create(
        namespace.container(script(f"{daemon} sleep 2; test -s beats"), "main", **mount),
        namespace.container(script("sleep 5; cat beats > before; sleep 1; cmp beats before"), "watcher", **mount),
        volumes=[{"name": "data", "emptyDir": {}}],
    )
    pod = namespace.wait_for(name, ended)
    assert terminated(pod)["exitCode"] == 0, "the daemon ran"
    assert terminated(pod, "watcher")["exitCode"] == 0, "and it ended with its container"


@pytest.mark.parametrize(
    ("command", "policy", "message"),
    [
        ("printf done > $FILE; exit 1", "File", "done"),
        ("echo last words; exit 1", "FallbackToLogsOnError", "last words\n"),
        ("echo log; printf file > $FILE; exit 1", "FallbackToLogsOnError", "file"),
        ("echo not an error", "FallbackToLogsOnError", None),
    ],
)
def test_termination_messages(own_namespace: Namespace, command: str, policy: str, message: str | None) -> None:
    pod = own_namespace.run(
        script(command),
        terminationMessagePolicy=policy,
        terminationMessagePath="/tmp/message",
        env=[{"name": "FILE", "value": "/tmp/message"}],
    )
    assert terminated(pod).get("message") == message


def test_an_image_that_cannot_be_had(namespace: Namespace) -> None:
    name = namespace.create({"name": "main", "image": namespace.profile.absent_image, "command": ["x"]})
    pod = namespace.wait_for(name, lambda pod: waiting_reason(pod) == "ErrImagePull")
    assert pod["status"]["phase"] == "Pending"
    assert state(pod)["waiting"]["message"]
    namespace.wait_for(name, lambda pod: waiting_reason(pod) == "ImagePullBackOff")
    namespace.core.delete_namespaced_pod(name, namespace.name)
    namespace.wait_gone(name)


def test_an_image_name_that_is_none(namespace: Namespace) -> None:
    name = namespace.create({"name": "main", "image": "Not A Name", "command": ["x"]})
    namespace.wait_for(name, lambda pod: waiting_reason(pod) == "InvalidImageName")


def test_an_image_that_may_not_be_pulled(namespace: Namespace) -> None:
    name = namespace.create({"name": "main", "image": namespace.profile.absent_image, "command": ["x"], "imagePullPolicy": "Never"})
    namespace.wait_for(name, lambda pod: waiting_reason(pod) == "ErrImageNeverPull")
