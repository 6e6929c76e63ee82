"""A pod's phase, conditions and container statuses, worked out from its containers' states. Pure: no clock, no API.

Source: kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle; wording as kubernetes/pkg/kubelet/status writes it.
"""

from dataclasses import dataclass, field

from local.kubelet.api import Json
from local.kubelet.node import ADDRESS


@dataclass
class ContainerState:
    """One container as the API shows it."""

    name: str
    image: str
    init: bool
    state: Json
    """`waiting`, `running` or `terminated`, as in the API."""
    image_id: str = ""
    container_id: str = ""

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while there is none."""
        terminated = self.state.get("terminated")
        return None if terminated is None else int(terminated["exitCode"])

    @property
    def running(self) -> bool:
        """Whether its first process runs."""
        return "running" in self.state

    @property
    def ready(self) -> bool:
        """As a kubelet without probes has it: a container is ready while it runs, an init container once it ended well."""
        return self.exit_code == 0 if self.init else self.running

    def as_status(self) -> Json:
        """As an item of containerStatuses."""
        return {
            "name": self.name,
            "image": self.image,
            "imageID": self.image_id,
            "containerID": self.container_id,
            "ready": self.ready,
            "started": self.running,
            "restartCount": 0,
            "state": self.state,
            "lastState": {},
        }


@dataclass
class Verdict:
    """Why the pod ends, where it is not the containers that decide: deadline, eviction, refusal."""

    phase: str | None = None
    reason: str = ""
    message: str = ""
    conditions: list[Json] = field(default_factory=list)
    """More conditions, such as DisruptionTarget; without lastTransitionTime."""


def phase(containers: list[ContainerState], verdict: Verdict, ended: bool) -> str:
    """The pod's phase. `ended`: nothing of it runs, and nothing more will be started."""
    if ended and verdict.phase:
        return verdict.phase
    main = [container for container in containers if not container.init]
    if ended:
        return "Succeeded" if all(container.exit_code == 0 for container in containers) else "Failed"
    if any(container.exit_code != 0 for container in containers if container.init) or any(
        "waiting" in container.state for container in main
    ):
        return "Pending"
    return "Running"


def _unready(containers: list[ContainerState], now_phase: str) -> Json:
    """The body of Ready and ContainersReady."""
    if now_phase == "Succeeded":
        return {"status": "False", "reason": "PodCompleted"}
    if now_phase == "Failed":
        return {"status": "False", "reason": "PodFailed"}
    unready = [container.name for container in containers if not container.init and not container.ready]
    if unready:
        return {"status": "False", "reason": "ContainersNotReady", "message": f"containers with unready status: [{' '.join(unready)}]"}
    return {"status": "True"}


def _initialized(containers: list[ContainerState], now_phase: str) -> Json:
    incomplete = [container.name for container in containers if container.init and container.exit_code != 0]
    if incomplete:
        return {
            "status": "False",
            "reason": "ContainersNotInitialized",
            "message": f"containers with incomplete status: [{' '.join(incomplete)}]",
        }
    return {"status": "True", "reason": "PodCompleted"} if now_phase == "Succeeded" else {"status": "True"}


def pod_status(
    containers: list[ContainerState], verdict: Verdict, ended: bool, start_time: str, previous: Json, now: str, prepared: bool
) -> Json:
    """The whole status to write.

    `previous` is the status as the API has it: a condition that does not change keeps its time. `prepared`: the pod's folder and volumes
    are made.
    """
    now_phase = phase(containers, verdict, ended)
    bodies: list[Json] = [
        {"type": "PodReadyToStartContainers", "status": "True" if prepared and not ended else "False"},
        {"type": "Initialized", **_initialized(containers, now_phase)},
        {"type": "Ready", **_unready(containers, now_phase)},
        {"type": "ContainersReady", **_unready(containers, now_phase)},
        *verdict.conditions,
    ]
    before = {condition["type"]: condition for condition in previous.get("conditions") or []}
    for body in bodies:
        old = before.get(body["type"])
        kept = old is not None and old.get("status") == body["status"]
        body["lastTransitionTime"] = old["lastTransitionTime"] if old is not None and kept and old.get("lastTransitionTime") else now
        body["lastProbeTime"] = None
        for optional in ("reason", "message"):
            # A merge patch keeps what it does not name.
            body.setdefault(optional, None)
    status: Json = {
        "phase": now_phase,
        "startTime": start_time,
        "hostIP": ADDRESS,
        "hostIPs": [{"ip": ADDRESS}],
        "podIP": ADDRESS,
        "podIPs": [{"ip": ADDRESS}],
        "conditions": bodies,
        "containerStatuses": [container.as_status() for container in containers if not container.init],
        "initContainerStatuses": [container.as_status() for container in containers if container.init],
    }
    if verdict.reason:
        status |= {"reason": verdict.reason, "message": verdict.message}
    return status
