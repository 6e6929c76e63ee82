"""``check``: decides, before any pod, whether the run is to be, and writes its spec. The one step that is no pod."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException, AirflowSkipException

from trainyard.contract import names
from trainyard.errors import ConfigError, NotFoundError, RefusedError
from trainyard.settings import Pipeline

if TYPE_CHECKING:
    from airflow.sdk import Context

STEP = "check"
RETRIES: Final = 3
RETRY_DELAY: Final = datetime.timedelta(seconds=5)
ASK_AGAIN: Final = datetime.timedelta(seconds=30)

Admit = Callable[["Context"], "str | None"]
"""Admits the run: None, or why there is nothing to do; raises NotYet where it is to be asked again.

It lies in :mod:`trainyard.pipelines.admission`, one layer up, and is given here."""


class NotYet(Exception):
    """The run may be, later: with the reason."""


class RunCheck(BaseOperator):
    """Runs the admission in the worker: a refusal fails for good (a retry asks the same question), nothing to do skips the run.

    What may be later is asked again later: no retry is spent on it, and no worker waits.
    """

    ui_color = "#b8d8ba"

    def __init__(self, *, admit: Admit, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._admit = admit

    def execute(self, context: Context) -> None:
        """Admit, refuse or skip."""
        try:
            nothing_to_do = self._admit(context)
        except (ConfigError, NotFoundError, RefusedError) as error:
            raise AirflowFailException(str(error)) from error
        except NotYet as later:
            self.log.info("waiting, nothing is created yet: %s", later)
            raise AirflowRescheduleException(datetime.datetime.now(datetime.UTC) + ASK_AGAIN) from later
        if nothing_to_do is not None:
            raise AirflowSkipException(nothing_to_do)


def build(pipeline: Pipeline, admit: Admit) -> RunCheck:
    """The task, in the platform's own pool: it must not wait behind a gang."""
    return RunCheck(
        task_id=STEP,
        admit=admit,
        pool=names.PLATFORM_POOL,
        pool_slots=1,
        retries=RETRIES,
        retry_delay=RETRY_DELAY,
        doc_md=f"Checks the form of {pipeline.name} against its configuration and tenant, and writes the run spec.",
    )
