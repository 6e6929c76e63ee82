"""What the ``trainyard`` command and the board ask: a FastAPI app inside Airflow's own server, behind Airflow's own login.

It refuses whoever Airflow would refuse (:mod:`trainyard.api.access`), reads Airflow's rows (:mod:`trainyard.api.records`) and the tenant's
S3 (everything else), and hands out short-lived presigned links to single objects. Starting, ending and repeating runs is not here: that
is Airflow's public REST API, with the person's own token.

``app`` is made when it is first asked for, so that Airflow processes which only load the plugin do not pay for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastapi import FastAPI

    app: FastAPI


def __getattr__(name: str) -> Any:
    if name == "app":
        from trainyard.api.application import make_app

        globals()["app"] = made = make_app()
        return made
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
