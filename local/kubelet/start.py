"""Starting one container: image, folders, mounts, environment, command line; and the reasons why it cannot be started (yet).

Not here: order and retries (pod.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from local.kubelet import downward
from local.kubelet.api import Api, Json
from local.kubelet.container import Container
from local.kubelet.environment import ContainerContext, command_line, environment
from local.kubelet.images import Image, ImageNotMapped, Images, ImagesFileError, InvalidImageName
from local.kubelet.node import Capacity
from local.kubelet.paths import PathMap
from local.kubelet.processes import Process, Processes
from local.kubelet.sources import SourceError, Sources
from local.kubelet.volumes import SERVICE_ACCOUNT_PATH, Volumes

TERMINATION_LOG = "TRAINYARD_TERMINATION_LOG"
MOUNT = "TRAINYARD_MOUNT_"
SERVICE_ACCOUNT_MOUNT = MOUNT + "SERVICE_ACCOUNT"
"""The service account's mount has this name too: its volume's own ends in random letters."""
IMAGE_RETRY_S = (10.0, 20.0, 40.0, 80.0, 160.0, 300.0)
"""A kubelet's back-off between pulls."""


class NotStarted(Exception):
    """The container cannot be started now; `reason` is what its waiting state shows."""

    def __init__(self, reason: str, message: str, *, event: str = "Failed", retry_s: float | None = None, certain: bool = False) -> None:
        """`retry_s`: when to try again, where that is not the usual. `certain`: waiting will not mend it by itself, so say it at once."""
        super().__init__(message)
        self.reason = reason
        self.event = event
        self.retry_s = retry_s
        self.certain = certain


@dataclass
class Starter:
    """What every container's start needs."""

    api: Api
    processes: Processes
    images: Images
    capacity: Capacity
    changed: Callable[[str], None]
    """Called with the pod's uid when the runtime reports something of it."""

    def sources(self, pod: Json) -> Sources:
        """What this pod may read."""
        return Sources(self.api, pod)

    def start(self, pod: Json, container: Container, volumes: Volumes) -> None:
        """Give the container to the runtime. Raises NotStarted, or processes.RuntimeLost."""
        try:
            self._start(pod, container, volumes)
        except OSError as problem:  # no space left, most of all
            raise NotStarted("CreateContainerError", f"{problem.strerror}: {problem.filename}", retry_s=10.0, certain=True) from problem

    def _start(self, pod: Json, container: Container, volumes: Volumes) -> None:
        image = self._image(container)
        container.work.mkdir(mode=0o700, parents=True, exist_ok=True)
        container.termination_log.touch(mode=0o600)
        paths = PathMap()
        paths.add(container.spec.get("terminationMessagePath") or "/dev/termination-log", container.termination_log)
        variables = {TERMINATION_LOG: str(container.termination_log)} | _mounts(container.spec, volumes, paths)
        base = {"HOME": str(container.work), "HOSTNAME": hostname(pod), **self._api_server(), **variables}
        context = ContainerContext(pod, image, base, paths, self.capacity)
        try:
            env = environment(container.spec, context, self.sources(pod))
        except SourceError as problem:
            raise NotStarted("CreateContainerConfigError", str(problem)) from problem
        command = command_line(container.spec, context, env)
        if not command:
            raise NotStarted(
                "CreateContainerError",
                "no command specified: the pod gives none, and the image has no entry point",
                retry_s=10.0,
                certain=True,
            )
        directory = _directory(container, paths)
        uid = pod["metadata"]["uid"]
        process = Process(
            id=f"{uid}/{container.name}",
            folder=container.folder,
            changed=lambda: self.changed(uid),
            memory_limit=_memory(container.spec),
            group=uid,
            group_memory_limit=_memory(pod["spec"]),
        )
        container.process = process
        container.shown.image_id = f"processes://{image.match}"
        self.processes.start(process, command, env, directory, container.log)

    def _image(self, container: Container) -> Image:
        reference = container.spec["image"]
        try:
            return self.images.find(reference)
        except InvalidImageName as problem:
            raise NotStarted("InvalidImageName", str(problem), event="InspectFailed", retry_s=60.0, certain=True) from problem
        except (ImageNotMapped, ImagesFileError) as problem:
            if container.spec.get("imagePullPolicy") == "Never":
                message = f'Container image "{reference}" is not present with pull policy of Never: {problem}'
                raise NotStarted("ErrImageNeverPull", message, event="ErrImageNeverPull", retry_s=10.0, certain=True) from problem
            # As a kubelet: the failure is shown once, then the back-off until the next try.
            failed = container.failures % 2 == 0
            wait = IMAGE_RETRY_S[min(container.failures // 2, len(IMAGE_RETRY_S) - 1)]
            if failed:
                raise NotStarted("ErrImagePull", str(problem), retry_s=2.0, certain=True) from problem
            message = f'Back-off pulling image "{reference}": {problem}'
            raise NotStarted("ImagePullBackOff", message, event="BackOff", retry_s=wait, certain=True) from problem

    def _api_server(self) -> dict[str, str]:
        """Where the API server is, under the names that a pod finds in any cluster."""
        server = urlsplit(self.api.host)
        port = str(server.port or 443)
        return {"KUBERNETES_SERVICE_HOST": server.hostname or "", "KUBERNETES_SERVICE_PORT": port, "KUBERNETES_SERVICE_PORT_HTTPS": port}


def hostname(pod: Json) -> str:
    """A pod's host name, as its containers would see it."""
    name: str = pod["spec"].get("hostname") or pod["metadata"]["name"]
    return name[:63].rstrip("-.")


def _mounts(spec: Json, volumes: Volumes, paths: PathMap) -> dict[str, str]:
    """Map the container's mounts, and name each in a variable. A volume mounted twice is named by its first mount."""
    variables: dict[str, str] = {}
    for mount in spec.get("volumeMounts") or []:
        here = volumes.path(mount["name"])
        if sub_path := mount.get("subPath"):
            here = here / sub_path
            if not here.exists():
                here.mkdir(parents=True)
        paths.add(mount["mountPath"], here)
        variables.setdefault(MOUNT + mount["name"].upper().replace("-", "_"), str(here))
        if mount["mountPath"].rstrip("/") == SERVICE_ACCOUNT_PATH:
            variables[SERVICE_ACCOUNT_MOUNT] = str(here)
    return variables


def _directory(container: Container, paths: PathMap) -> Path:
    """Where the container starts: workingDir inside a volume or, outside of all volumes, at that place below its private folder."""
    wanted = container.spec.get("workingDir")
    if not wanted:
        return container.work
    here = paths.find(wanted.rstrip("/") or "/")
    directory = here if here is not None else container.work / wanted.lstrip("/")
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _memory(spec: Json) -> int | None:
    """The memory limit in bytes of a container's or a pod's resources."""
    text = ((spec.get("resources") or {}).get("limits") or {}).get("memory")
    return None if text is None else int(downward.quantity(str(text)))
