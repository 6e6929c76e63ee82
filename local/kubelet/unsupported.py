"""What a pod may not ask of this kubelet: refused by name, in the pod's own status, instead of being ignored in silence.

The two other lists (done; accepted and not enforced) are in docs/embedded-kubelet.md; a test holds all three together.
"""

from local.kubelet import volumes
from local.kubelet.api import Json

REASON = "UnsupportedByEmbeddedKubelet"

POD_FIELDS = {
    "hostAliases": "/etc/hosts is the machine's own",
    "runtimeClassName": "there is one runtime: processes",
    "resourceClaims": "there are no devices",
    "setHostnameAsFQDN": "the host name is the machine's own; HOSTNAME is set",
}
"""Fields of a pod's spec that are refused, and why."""

CONTAINER_FIELDS = {
    "livenessProbe": "probes are not run",
    "readinessProbe": "probes are not run",
    "startupProbe": "probes are not run",
    "lifecycle": "hooks are not run",
    "stdin": "nothing can be attached",
    "stdinOnce": "nothing can be attached",
    "tty": "there is no terminal",
    "volumeDevices": "there are no block devices",
    "restartPolicy": "sidecar containers are not started",
    "restartPolicyRules": "containers are not restarted",
}
"""Fields of a container that are refused, and why."""

MOUNT_FIELDS = {"subPathExpr": "use subPath", "mountPropagation": "there are no mounts"}
ENV_SOURCES = ("fieldRef", "resourceFieldRef", "secretKeyRef", "configMapKeyRef")
WAY_OUT = "leave it out, or use a cluster with a real kubelet (docs/embedded-kubelet.md)"


def refusals(pod: Json) -> list[str]:
    """Everything in the pod that this kubelet cannot do, each as `field: why`. Empty for a pod that can run."""
    spec = pod["spec"]
    found = []
    if spec.get("restartPolicy", "Always") != "Never":
        found.append(f"spec.restartPolicy: {spec.get('restartPolicy', 'Always')}: only Never is supported: containers are not restarted")
    found += [f"spec.{field}: {why}" for field, why in POD_FIELDS.items() if spec.get(field)]
    for volume in spec.get("volumes") or []:
        found += _volume(volume)
    for group in ("initContainers", "containers"):
        for container in spec.get(group) or []:
            found += _container(f"spec.{group}[{container['name']}]", container)
    return found


def _volume(volume: Json) -> list[str]:
    where = f"spec.volumes[{volume['name']}]"
    kinds = [kind for kind in volume if kind != "name"]
    found = [
        f"{where}.{kind}: not a volume kind of the embedded cluster (has {', '.join(volumes.KINDS)})"
        for kind in kinds
        if kind not in volumes.KINDS
    ]
    for source in (volume.get("projected") or {}).get("sources") or []:
        found += [
            f"{where}.projected.{kind}: not supported (has {', '.join(volumes.PROJECTED)})"
            for kind in source
            if kind not in volumes.PROJECTED
        ]
    return found


def _container(where: str, container: Json) -> list[str]:
    found = [f"{where}.{field}: {why}" for field, why in CONTAINER_FIELDS.items() if container.get(field)]
    for mount in container.get("volumeMounts") or []:
        found += [
            f"{where}.volumeMounts[{mount['name']}].{field}: {why}"
            for field, why in MOUNT_FIELDS.items()
            if mount.get(field) not in (None, "None")
        ]
    if (container.get("resources") or {}).get("claims"):
        found.append(f"{where}.resources.claims: there are no devices")
    for item in container.get("env") or []:
        found += [
            f"{where}.env[{item['name']}].valueFrom.{kind}: not supported"
            for kind in item.get("valueFrom") or {}
            if kind not in ENV_SOURCES
        ]
    return found


def message(found: list[str]) -> str:
    """The pod's status message."""
    return f"the embedded kubelet does not do: {'; '.join(found)}; {WAY_OUT}"


def waits_instead_of_failing(pod: Json) -> bool:
    """Whether the pod belongs to a controller that replaces a failed pod at once, for ever: such a pod is left Pending with its reason."""
    owners = pod["metadata"].get("ownerReferences") or []
    return any(owner.get("controller") and owner.get("kind") != "Job" for owner in owners)
