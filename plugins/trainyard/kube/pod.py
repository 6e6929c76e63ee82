"""The one path by which a pod of Trainyard is composed: steps, the gang's replicas and upkeep alike.

What a caller may say is in :class:`PodParts`; everything else, the security context above all, is decided here and is the same for
all. What the cluster profile gives every pod comes with the :class:`Site`, without which no pod can be composed.
Sources: https://kubernetes.io/docs/concepts/security/pod-security-standards/ (``restricted``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kubernetes import client as k8s

from trainyard.contract import environment, names
from trainyard.contract.run_spec import RunSpec
from trainyard.kube.client import TOKEN_VOLUME
from trainyard.kube.resources import pod_resources, scratch
from trainyard.settings.clusters import ClusterProfile
from trainyard.settings.site_pods import SitePods, Toleration

CONTAINER: Final = "main"
WORK_VOLUME: Final = "work"
WORK_PATH: Final = "/work"
USER: Final = 65532
"""The number that distroless images call ``nonroot``; no user of it need exist in the image."""
GRACE_S: Final = 10
"""Time between TERM and KILL: the trainer's supervisor needs it to ship the last lines of its log."""
TOKEN_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
CA_VOLUME: Final = "s3-ca"
CA_PATH: Final = "/etc/trainyard/s3-ca"


@dataclass(frozen=True)
class Site:
    """What the cluster profile says of every pod."""

    image: str
    pull_policy: str
    counts_scratch: bool = True
    gpu_resource: str = "nvidia.com/gpu"
    pull_secrets: tuple[str, ...] = ()
    ca_bundle: bool = False
    """Whether S3's authorities are in a ConfigMap beside the pod (``trainyard sync`` makes it)."""
    pods: SitePods = field(default_factory=SitePods)

    @classmethod
    def of(cls, profile: ClusterProfile, image: str | None = None) -> Site:
        """The profile's; ``image`` in place of the trainer's."""
        return cls(
            image=image or profile.images.trainer,
            pull_policy=profile.image_pull_policy,
            counts_scratch=profile.counts_scratch,
            gpu_resource=profile.gpu_resource,
            pull_secrets=profile.image_pull_secrets,
            ca_bundle=profile.s3.ca_bundle is not None,
            pods=profile.pods,
        )

    def labels(self, ours: Mapping[str, str]) -> dict[str, str]:
        """The site's labels with ours, for a Job as for a pod."""
        return {**self.pods.labels, **ours}

    def annotations(self, ours: Mapping[str, str]) -> dict[str, str]:
        """The site's annotations with ours, for a Job as for a pod."""
        return {**self.pods.annotations, **ours}


@dataclass(frozen=True)
class PodParts:
    """What differs between two pods of ours."""

    site: Site
    """Image, and what the cluster profile gives every pod."""
    command: Sequence[str]
    resources: Mapping[str, str]
    """Requests and limits."""
    scratch: str
    """sizeLimit of the working directory."""
    environment: Mapping[str, str]
    labels: Mapping[str, str]
    annotations: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Variable → (Secret, key)."""
    service_account: str = names.SERVICE_ACCOUNT
    api_access: bool = False
    """Whether the pod may speak to the API server as its service account: upkeep only."""
    subdomain: str | None = None
    """Name of the headless Service that gives the pod its name in DNS."""
    spread_by: Mapping[str, str] | None = None
    """Pods with these labels are spread over the nodes, as far as there is room."""
    active_deadline_s: int | None = None


def _security() -> tuple[k8s.V1PodSecurityContext, k8s.V1SecurityContext]:
    pod = k8s.V1PodSecurityContext(
        run_as_non_root=True,
        run_as_user=USER,
        run_as_group=USER,
        fs_group=USER,
        seccomp_profile=k8s.V1SeccompProfile(type="RuntimeDefault"),
    )
    container = k8s.V1SecurityContext(
        allow_privilege_escalation=False,
        read_only_root_filesystem=True,
        capabilities=k8s.V1Capabilities(drop=["ALL"]),
    )
    return pod, container


def _own_facts() -> list[k8s.V1EnvVar]:
    """What only the cluster knows of a pod: its name and what it may use."""

    def limit(resource: str, divisor: str) -> k8s.V1EnvVarSource:
        selector = k8s.V1ResourceFieldSelector(container_name=CONTAINER, resource=f"limits.{resource}", divisor=divisor)
        return k8s.V1EnvVarSource(resource_field_ref=selector)

    name = k8s.V1EnvVarSource(field_ref=k8s.V1ObjectFieldSelector(field_path="metadata.name"))
    return [
        k8s.V1EnvVar(name=environment.POD_NAME, value_from=name),
        k8s.V1EnvVar(name=environment.CPU_MILLIS, value_from=limit("cpu", "1m")),
        k8s.V1EnvVar(name=environment.MEMORY_BYTES, value_from=limit("memory", "1")),
    ]


def _environment(parts: PodParts) -> list[k8s.V1EnvVar]:
    # HOME and TMPDIR: the root file system is read-only, and libraries that cache in the home folder must find one that is not.
    plain = {"HOME": WORK_PATH, "TMPDIR": WORK_PATH} | dict(parts.environment)
    if parts.site.ca_bundle:
        plain[environment.S3_CA_BUNDLE] = f"{CA_PATH}/{names.CA_KEY}"
    variables = [k8s.V1EnvVar(name=name, value=value) for name, value in plain.items()]
    variables += _own_facts()
    for name, (secret, key) in parts.secrets.items():
        reference = k8s.V1SecretKeySelector(name=secret, key=key)
        variables.append(k8s.V1EnvVar(name=name, value_from=k8s.V1EnvVarSource(secret_key_ref=reference)))
    return variables


def _token_volume() -> k8s.V1Volume:
    """Kubernetes' own projected volume, under a name that is known beforehand."""
    namespace = k8s.V1DownwardAPIVolumeFile(path="namespace", field_ref=k8s.V1ObjectFieldSelector(field_path="metadata.namespace"))
    sources = [
        k8s.V1VolumeProjection(service_account_token=k8s.V1ServiceAccountTokenProjection(path="token", expiration_seconds=3607)),
        k8s.V1VolumeProjection(
            config_map=k8s.V1ConfigMapProjection(name="kube-root-ca.crt", items=[k8s.V1KeyToPath(key="ca.crt", path="ca.crt")])
        ),
        k8s.V1VolumeProjection(downward_api=k8s.V1DownwardAPIProjection(items=[namespace])),
    ]
    return k8s.V1Volume(name=TOKEN_VOLUME, projected=k8s.V1ProjectedVolumeSource(sources=sources))


def _toleration(toleration: Toleration) -> k8s.V1Toleration:
    return k8s.V1Toleration(**toleration.model_dump(exclude_none=True))


def pod_template(parts: PodParts) -> k8s.V1PodTemplateSpec:
    """Compose a pod: restricted, non-root, read-only but for its working directory, requests = limits, ended within seconds."""
    site = parts.site
    pod_security, container_security = _security()
    volumes = [k8s.V1Volume(name=WORK_VOLUME, empty_dir=k8s.V1EmptyDirVolumeSource(size_limit=parts.scratch))]
    mounts = [k8s.V1VolumeMount(name=WORK_VOLUME, mount_path=WORK_PATH)]
    if parts.api_access:
        volumes.append(_token_volume())
        mounts.append(k8s.V1VolumeMount(name=TOKEN_VOLUME, mount_path=TOKEN_PATH, read_only=True))
    if site.ca_bundle:
        volumes.append(k8s.V1Volume(name=CA_VOLUME, config_map=k8s.V1ConfigMapVolumeSource(name=names.CONFIG_MAP_CA)))
        mounts.append(k8s.V1VolumeMount(name=CA_VOLUME, mount_path=CA_PATH, read_only=True))
    spread = None
    if parts.spread_by:
        spread = [
            k8s.V1TopologySpreadConstraint(
                max_skew=1,
                topology_key="kubernetes.io/hostname",
                when_unsatisfiable="ScheduleAnyway",
                label_selector=k8s.V1LabelSelector(match_labels=dict(parts.spread_by)),
            )
        ]
    container = k8s.V1Container(
        name=CONTAINER,
        image=site.image,
        image_pull_policy=site.pull_policy,
        command=list(parts.command),
        working_dir=WORK_PATH,
        env=_environment(parts),
        resources=k8s.V1ResourceRequirements(requests=dict(parts.resources), limits=dict(parts.resources)),
        volume_mounts=mounts,
        security_context=container_security,
        # The supervisor writes the last error line to /dev/termination-log; where it cannot, Kubernetes takes the end of the log.
        termination_message_policy="FallbackToLogsOnError",
    )
    spec = k8s.V1PodSpec(
        restart_policy="Never",
        containers=[container],
        volumes=volumes,
        service_account_name=parts.service_account,
        automount_service_account_token=False,
        enable_service_links=False,
        security_context=pod_security,
        termination_grace_period_seconds=GRACE_S,
        active_deadline_seconds=parts.active_deadline_s,
        subdomain=parts.subdomain,
        topology_spread_constraints=spread,
        image_pull_secrets=[k8s.V1LocalObjectReference(name=name) for name in site.pull_secrets] or None,
        node_selector=dict(site.pods.node_selector) or None,
        tolerations=[_toleration(toleration) for toleration in site.pods.tolerations] or None,
        priority_class_name=site.pods.priority_class_name,
        scheduler_name=site.pods.scheduler_name,
        host_network=site.pods.host_network or None,
        # Without it a pod in its node's network asks the node's resolver, which knows no Service.
        dns_policy="ClusterFirstWithHostNet" if site.pods.host_network else None,
    )
    metadata = k8s.V1ObjectMeta(labels=site.labels(parts.labels), annotations=site.annotations(parts.annotations) or None)
    return k8s.V1PodTemplateSpec(metadata=metadata, spec=spec)


def as_pod(template: k8s.V1PodTemplateSpec, name: str, namespace: str) -> k8s.V1Pod:
    """The template as one pod of that name."""
    metadata = k8s.V1ObjectMeta(name=name, namespace=namespace, labels=template.metadata.labels, annotations=template.metadata.annotations)
    return k8s.V1Pod(api_version="v1", kind="Pod", metadata=metadata, spec=template.spec)


def trainer_command(*arguments: str) -> tuple[str, ...]:
    """The command of every trainer container: its PID 1 is the supervisor."""
    return ("python", "-m", "trainer.supervisor", "--", "python", "-m", "trainer.cli", *arguments)


def trainer_parts(
    spec: RunSpec,
    site: Site,
    *,
    command: Sequence[str],
    slots: int,
    gpus: int = 0,
    labels: Mapping[str, str],
    environment_: Mapping[str, str],
    secret: str = names.SECRET_RUN,
    annotations: Mapping[str, str] | None = None,
    subdomain: str | None = None,
    spread_by: Mapping[str, str] | None = None,
    active_deadline_s: int | None = None,
) -> PodParts:
    """The parts of a trainer pod: it is told the run spec, and its S3 keys come from the tenant's Secret ``secret``."""
    return PodParts(
        site=site,
        command=command,
        resources=pod_resources(spec.slot, slots, counts_scratch=site.counts_scratch, gpus=gpus, gpu_resource=site.gpu_resource),
        scratch=scratch(spec.slot, slots),
        environment={environment.RUN_SPEC: spec.to_json()} | dict(environment_),
        labels=labels,
        annotations=annotations or {},
        secrets={environment.S3_ACCESS_KEY: (secret, "access_key"), environment.S3_SECRET_KEY: (secret, "secret_key")},
        subdomain=subdomain,
        spread_by=spread_by,
        active_deadline_s=active_deadline_s,
    )
