"""The one KubernetesPodOperator of Trainyard: how every pod that is not in a gang is started, watched and ended."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from kubernetes import client as k8s

from trainyard.contract import environment, names
from trainyard.contract.exit_codes import ExitCode, describe, is_final
from trainyard.errors import ConfigError, NotFoundError, RefusedError
from trainyard.kube import labels, quota
from trainyard.kube.client import kubeconfig_path
from trainyard.kube.pod import CONTAINER, GRACE_S, Site, as_pod, pod_template, trainer_command, trainer_parts
from trainyard.operators.pod_creation import PatientPodManager
from trainyard.operators.run_access import open_run, run_of

if TYPE_CHECKING:
    from airflow.sdk import Context

SCHEDULE_S: Final = 3600
"""A pod may wait so long for a node: the provider's 120 s would fail a step that only waits for another to end."""
START_S: Final = 900
"""From being scheduled to running: the first pull of a large image on a slow line."""
STEP_DEADLINE_S: Final = 6 * 3600
"""A step that still runs after this is hung. It is the pod's own deadline, so it holds while Airflow is down."""


class HousePod(KubernetesPodOperator):
    """KubernetesPodOperator with the house's defaults.

    What is set otherwise than the provider has it, and why:

    ``deferrable=False``
        a deferred task gives its pool slots back while its pod runs, so a tenant's limit would be none (apache/airflow#20940); and on
        this release the scheduler can fail a good deferred task whose pod was quick.
    ``startup_check_interval_seconds=1``
        the default of 5 costs every step five seconds.
    ``schedule_timeout_seconds``, ``startup_timeout_seconds``
        waiting for a node is not a failure.
    ``log_pod_spec_on_failure=False``
        the default prints the whole pod, environment and all, into the task's log.
    ``on_finish_action="delete_pod"``
        logs are in S3; a finished pod that is kept is only in the way of the next try.
    ``durable=True`` (the provider's default, relied on)
        a worker that dies is followed by a try that re-attaches to the living pod (measured: SIGKILL of the worker; the log is
        replayed from its start).
    ``kubernetes_conn_id=None``, ``config_file``
        the cluster is the one of the profile, as for everything else, and not an Airflow connection that people may edit.
    ``create_pod``
        waits for room in the quota instead of failing (:mod:`trainyard.operators.pod_creation`).

    Exit codes that a retry would repeat (:data:`trainyard.contract.exit_codes.FINAL`) and memory kills fail the task for good;
    ``SKIPPED`` skips it; anything else is retried. A task that was killed never ends well, whatever its pod did.
    """

    BASE_CONTAINER_NAME: ClassVar[str] = CONTAINER

    def __init__(self, **kwargs: Any) -> None:
        settings: dict[str, Any] = {
            "kubernetes_conn_id": None,
            "deferrable": False,
            "startup_check_interval_seconds": 1,
            "schedule_timeout_seconds": SCHEDULE_S,
            "startup_timeout_seconds": START_S,
            "log_pod_spec_on_failure": False,
            "on_finish_action": "delete_pod",
            "termination_grace_period": GRACE_S,
            "termination_message_policy": "FallbackToLogsOnError",
            "container_name_log_prefix_enabled": False,
            "skip_on_exit_code": int(ExitCode.SKIPPED),
            "do_xcom_push": False,
        }
        super().__init__(**(settings | kwargs))

    def compose(self, context: Context) -> k8s.V1Pod:
        """The pod of this task, by :func:`trainyard.kube.pod.pod_template`."""
        raise NotImplementedError

    def execute(self, context: Context) -> Any:
        """Run the pod to its end."""
        try:
            pod = self.compose(context)
        except (ConfigError, NotFoundError) as error:
            raise AirflowFailException(str(error)) from error
        self._choose_cluster()
        self.full_pod_spec = pod
        self.namespace = pod.metadata.namespace
        self.name = pod.metadata.name
        # What makes the provider find its pod again is a search by these labels.
        self.labels = labels.identity(pod.metadata.labels)
        try:
            result = super().execute(context)
        except AirflowSkipException:
            self._end_if_killed()
            raise
        except RefusedError as error:
            raise AirflowFailException(str(error)) from error
        except AirflowException as error:
            self._end_if_killed()
            raise self._judge(error) from error
        except k8s.ApiException as error:
            self._end_if_killed()
            gone = "the pod was removed from outside" if error.status == 404 else "the API server refused"
            raise AirflowException(f"{gone}: {quota.message_of(error)}") from error
        self._end_if_killed()
        return result

    def _end_if_killed(self) -> None:
        # After TERM the provider returns as if all were well: the task would be green, and its pod is gone.
        if self._killed:
            raise AirflowException("the task was killed: its pod was deleted")

    def _check_stop(self) -> None:
        self._end_if_killed()

    def _judge(self, error: AirflowException) -> AirflowException:
        """The provider's error as one of ours: with the exit code's meaning, and final where a retry is pointless."""
        ended = self._ended()
        if ended is None:
            return error
        if ended.reason == "OOMKilled":
            limits = self.full_pod_spec.spec.containers[0].resources.limits if self.full_pod_spec else {}
            return AirflowFailException(f"OOM in {self.task_id}: it used more than its limit of {limits.get('memory')}: give it more slots")
        lines = (ended.message or "").strip().splitlines()
        text = f"{describe(ended.exit_code)} (exit code {ended.exit_code})" + (f": {lines[-1]}" if lines else "")
        return (AirflowFailException if is_final(ended.exit_code) else AirflowException)(text)

    def _ended(self) -> k8s.V1ContainerStateTerminated | None:
        statuses = (self.remote_pod.status.container_statuses if self.remote_pod and self.remote_pod.status else None) or []
        for status in statuses:
            if status.name == CONTAINER and status.state and status.state.terminated:
                return status.state.terminated
        return None

    def _choose_cluster(self) -> None:
        # Before the provider makes its hook: it does so while it builds the pod, to label it, and keeps it.
        path = kubeconfig_path(self._profile_kubeconfig())
        if path is not None:
            self.config_file = str(path)
        else:
            self.in_cluster = True

    def _profile_kubeconfig(self) -> str | None:
        from trainyard.settings import load_tenant

        return load_tenant(self.tenant_name).settings.cluster.kubeconfig

    @property
    def tenant_name(self) -> str:
        """The tenant whose configuration this task reads."""
        raise NotImplementedError

    @cached_property
    def pod_manager(self) -> PatientPodManager:
        """The provider's, with patience."""
        return PatientPodManager(self.client, self._check_stop, callbacks=self.callbacks)


class StepPod(HousePod):
    """One step of a run as one pod of the tenant: it is told the run spec and nothing else.

    Args:
        tenant: whose namespace and bucket.
        pipeline: for the run's short name.
        step: name of the step on both sides.
        index: of a task of a mapped step (``shard``): what the pod gets as ``--index``.
        secret: which of the tenant's S3 identities the pod uses.
    """

    template_fields: Sequence[str] = ()

    def __init__(
        self, *, tenant: str, pipeline: str, step: str, index: int | None = None, secret: str = names.SECRET_RUN, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.tenant = tenant
        self.pipeline = pipeline
        self.step = step
        self.index = index
        self.secret = secret

    @property
    def tenant_name(self) -> str:
        return self.tenant

    def compose(self, context: Context) -> k8s.V1Pod:
        """Read the spec that ``check`` wrote, and compose the pod from it."""
        access = open_run(self.tenant, run_of(context, self.pipeline))
        spec, cluster = access.spec, access.settings.cluster
        replica = names.step_replica(self.step, self.index)
        arguments = ["step", self.step] + ([] if self.index is None else ["--index", str(self.index)])
        parts = trainer_parts(
            spec,
            # An identity that may write models is no tenant's to have: its pods run the platform's image only.
            Site.of(cluster, spec.image if self.secret == names.SECRET_RUN else None),
            command=trainer_command(*arguments),
            slots=spec.step_slots,
            labels=labels.step_labels(spec, self.step),
            annotations=labels.run_annotations(spec),
            environment_={environment.REPLICA: replica},
            secret=self.secret,
            active_deadline_s=STEP_DEADLINE_S,
        )
        return as_pod(pod_template(parts), f"{spec.run}-{replica}", access.namespace)
