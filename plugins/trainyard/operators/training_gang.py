"""The operator of the ``train`` step: a gang of Jobs that outlives the Airflow task which watches it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from trainyard.errors import ConfigError, GangError, NotFoundError, RefusedError
from trainyard.operators.run_access import open_run, run_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainyard.operators.gang_run import GangRun


class TrainingGang(BaseOperator):
    """Trains with a chief, parameter servers and workers; see :mod:`trainyard.operators.gang_run` for what it does when.

    Args:
        tenant: whose namespace, quota and bucket.
        pipeline: for the run's short name.
        gang_shape: the pipeline's own gang (``workers``, ``parameter_servers``, ``chief_slots``, ``ps_slots``, ``worker_slots``).
            A template field only so that it is part of the serialized DAG, where the scheduler's
            ``task_instance_mutation_hook`` (:mod:`trainyard.pipelines.policy`) finds it: ``pool_slots`` itself is not templated.

    A killed task leaves the gang alone: inside ``on_kill``, a signal handler, nothing can be asked safely, and "the worker is being
    restarted" looks like "the user killed it". The next try adopts what was to go on; ``clean_up`` ends what was to end.
    """

    template_fields: Sequence[str] = ("gang_shape",)
    ui_color = "#f2d38b"

    def __init__(self, *, tenant: str, pipeline: str, gang_shape: Mapping[str, int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tenant = tenant
        self.pipeline = pipeline
        self.gang_shape = dict(gang_shape)
        self._run: GangRun | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Train; returns ids and numbers only: all that passes between steps lies in S3."""
        from trainyard.operators.gang_cluster import GangLeft

        run = run_of(context, self.pipeline)
        try:
            self._run = self._open(run)
            outcome = self._run.run()
        except GangLeft as left:
            # Never a normal return: the handler of TERM does not end the process, so a task that was killed would end green.
            raise AirflowException(str(left)) from left
        except GangError as error:
            if error.final:
                raise AirflowFailException(str(error)) from error
            raise AirflowException(str(error)) from error
        except (ConfigError, NotFoundError, RefusedError) as error:
            raise AirflowFailException(str(error)) from error
        return {"run": run, "generation": outcome.generation, "checkpoint_step": outcome.checkpoint_step}

    def _open(self, run: str) -> GangRun:
        from trainyard.kube.client import client
        from trainyard.operators.gang_cluster import GangCluster
        from trainyard.operators.gang_run import GangRun

        access = open_run(self.tenant, run)
        profile = access.settings.cluster
        cluster = GangCluster(client(profile.kubeconfig), profile, access.spec, access.spec_sha256, self.log.info)
        return GangRun(cluster, access.store)

    def on_kill(self) -> None:
        """Leave the gang alone, and end the task (see the class)."""
        if self._run is not None:
            self._run.stop = True
