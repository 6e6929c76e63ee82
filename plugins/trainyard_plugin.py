"""The one file of Trainyard that Airflow's plugin manager loads: timetable, listener, and the app that the command line asks.

Every Airflow process loads it, so the app is made at its first request, by the API server alone.
"""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from trainyard.pipelines import run_note
from trainyard.pipelines.timetable import DatasetVersionTimetable


class LazyApp:
    """An ASGI app that is imported when it is first asked."""

    _app: Any = None

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Hand the request on."""
        if self._app is None:
            from trainyard.api import app

            self._app = app
        await self._app(scope, receive, send)


class TrainyardPlugin(AirflowPlugin):
    """Registers what Trainyard adds to Airflow."""

    name = "trainyard"
    timetables = [DatasetVersionTimetable]
    listeners = [run_note]
    fastapi_apps = [{"app": LazyApp(), "url_prefix": "/trainyard", "name": "Trainyard"}]
