"""The app itself: its addresses, who may ask each, and our errors as HTTP answers.

Every address that names a DAG depends on one of :mod:`trainyard.api.access`'s checks *and* resolves the DAG to a tenant's pipeline; a test
walks all routes and fails if one does not ask who is there.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, FastAPI, HTTPException, Query, Request, Response, status
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from trainyard.api import access, local_runs, models, packages, records, replica_logs, runs, tenants
from trainyard.api.deployment import Deployment, Target
from trainyard.api.wheels import MAX_BYTES
from trainyard.contract import names
from trainyard.errors import ConfigError, ConflictError, NotFoundError, TrainyardError

Digest = Annotated[str, Query(pattern="^[0-9a-f]{64}$")]


router = APIRouter()


def make_app(deployment: Deployment | None = None) -> FastAPI:
    """The app over a deployment (None: the one that ``TRAINYARD_CONFIG`` names)."""
    app = FastAPI(
        title="Trainyard",
        description="What the `trainyard` command asks, beside Airflow's own REST API.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.state.deployment = deployment or Deployment(owner=access.owner, teams_in_use=access.teams_in_use)
    app.add_exception_handler(TrainyardError, _answer)
    app.include_router(router)
    return app


def _of_dag(dag_id: str, request: Request) -> Target:
    return request.app.state.deployment.target(dag_id)


def _visible(person: access.Person, request: Request) -> list[Target]:
    return request.app.state.deployment.visible(access.readable_dags(person))


Pipeline = Annotated[Target, Depends(_of_dag)]
"""The pipeline behind the DAG in the path."""
Visible = Annotated[list[Target], Depends(_visible)]
"""The pipelines that the caller may see."""


@router.get("/me")
def me(person: access.Person) -> dict[str, Any]:
    """Who is asking."""
    return {"user": access.name_of(person)}


@router.get("/pipelines")
def pipelines(targets: Visible, person: access.Person, request: Request) -> dict[str, Any]:
    """The pipelines that the caller may see.

    ``pending`` names those that Airflow has still to read (a minute after they were written), ``problems`` says what is wrong with files
    of the caller's tenants: a pipeline whose file is broken is in neither list.
    """
    known = records.dags([target.dag_id for target in targets])
    everything = request.app.state.deployment.targets().values()
    pending = [t.pipeline.name for t in everything if t.dag_id not in known and access.may_see(person, t.dag_id, t.tenant)]
    problems = request.app.state.deployment.problems().items()
    return {
        "pipelines": [_pipeline(t) | known[t.dag_id] for t in targets if t.dag_id in known],
        "pending": sorted(pending),
        # What anybody of the tenant's team might see, asked by a DAG's id that no pipeline can have.
        "problems": sorted(
            {line for tenant, lines in problems if access.may_see(person, names.dag_id(tenant, ""), tenant) for line in lines}
        ),
    }


@router.get("/tenants")
def all_tenants(person: access.Person, request: Request) -> dict[str, Any]:
    """How it stands with the slots of each tenant whose pool the caller may see."""
    found = request.app.state.deployment.tenants().items()
    seen = [(name, settings) for name, settings in sorted(found) if access.may_see_pool(person, names.pool(name), name)]
    return {"tenants": [tenants.overview(settings, settings.tenants[name]) for name, settings in seen]}


@router.get("/runs")
def latest_runs(targets: Visible, limit: Annotated[int, Query(ge=1, le=200)] = 20, pipeline: str | None = None) -> dict[str, Any]:
    """The latest runs of the pipelines that the caller may see, or of one of them."""
    if pipeline is not None:
        targets = [t for t in targets if pipeline in (t.pipeline.name, f"{t.tenant}/{t.pipeline.name}", t.dag_id)]
        if not targets:
            raise NotFoundError(f"no pipeline `{pipeline}` that you may see")
    return {"runs": runs.board(targets, limit)}


@router.get("/resolve")
def resolve(targets: Visible, run: Annotated[str, Query(min_length=1, max_length=500)]) -> dict[str, Any]:
    """The run that a person means."""
    return runs.resolve(run, targets)


@router.get("/runs/{dag_id}/{run_id}", dependencies=[Depends(access.may_read_runs)])
def run(target: Pipeline, run_id: str) -> dict[str, Any]:
    """One run: steps, progress, result."""
    return runs.document(target, run_id)


@router.get("/runs/{dag_id}/{run_id}/logs", dependencies=[Depends(access.may_read_logs)])
def logs(target: Pipeline, run_id: str) -> dict[str, Any]:
    """The replicas of a run that have a log."""
    _existing(target, run_id)
    return {"replicas": replica_logs.overview(target.data, target.run_name(run_id))}


@router.get("/runs/{dag_id}/{run_id}/logs/{replica}", dependencies=[Depends(access.may_read_logs)])
def log(target: Pipeline, run_id: str, replica: str, cursor: str = "") -> Response:
    """Bytes of a replica's log from a cursor on; the next cursor and the state stand in the headers."""
    row = _existing(target, run_id)
    piece = replica_logs.read(target.data, target.run_name(run_id), replica, cursor, run_is_over=row["state"] in runs.ENDED)
    headers = {"Trainyard-Cursor": piece.cursor, "Trainyard-State": piece.state, "X-Content-Type-Options": "nosniff"}
    return Response(piece.data, media_type="text/plain; charset=utf-8", headers=headers)


@router.get("/models")
def all_models(targets: Visible) -> dict[str, Any]:
    """The models of every pipeline that the caller may see."""
    return {"models": [models.overview(target) for target in targets]}


@router.get("/models/{dag_id}", dependencies=[Depends(access.may_read_results)])
def pipeline_models(target: Pipeline) -> dict[str, Any]:
    """The versions of a pipeline's model."""
    return models.overview(target)


@router.get("/models/{dag_id}/{version}", dependencies=[Depends(access.may_read_results)])
def model_files(target: Pipeline, version: str) -> dict[str, Any]:
    """The files of one version (a number, or ``champion``), with links that are good for minutes."""
    return models.files(target, version)


@router.post("/packages/{dag_id}", dependencies=[Depends(access.may_trigger)])
async def publish(request: Request, person: access.Person, target: Pipeline, sha256: Digest) -> dict[str, Any]:
    """Publishes the wheel in the body as the newest of the pipeline's package."""
    # Every pipeline that names the package will train the new code: whoever publishes must be allowed to change each of them.
    users = [p for p in target.settings.pipelines_of(target.tenant) if p.model.package and p.model.package == target.pipeline.model.package]
    for user in users:
        dag_id = names.dag_id(target.tenant, user.name)
        if not await run_in_threadpool(access.may_edit, person, dag_id, access.owner(dag_id)):
            raise HTTPException(status.HTTP_403_FORBIDDEN, f"the package is also trained by `{user.name}`, which you may not change")
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > MAX_BYTES:
            raise HTTPException(status.HTTP_413_CONTENT_TOO_LARGE, f"a wheel has at most {MAX_BYTES} bytes: keep data out of the package")
    return await run_in_threadpool(packages.publish, target, bytes(data), sha256, access.name_of(person))


@router.post("/local/{dag_id}", dependencies=[Depends(access.may_trigger), Depends(access.may_read_results)])
def local_run(
    target: Pipeline, version: Annotated[str | None, Body()] = None, values: Annotated[dict[str, Any] | None, Body()] = None
) -> dict[str, Any]:
    """What one process of the caller's own needs to train on the real shards."""
    return local_runs.describe(target, version, values or {})


def _existing(target: Target, run_id: str) -> dict[str, Any]:
    row = records.run(target.dag_id, run_id)
    if row is None:
        raise NotFoundError(f"pipeline `{target.pipeline.name}` has no run `{run_id}`")
    return row


def _pipeline(target: Target) -> dict[str, Any]:
    pipeline = target.pipeline
    dataset = target.settings.dataset_of(pipeline)
    return {
        "dag_id": target.dag_id,
        "tenant": target.tenant,
        "pipeline": pipeline.name,
        "description": pipeline.description,
        "dataset": pipeline.dataset,
        "versions": [{"version": name, "released": entry.released.isoformat()} for name, entry in dataset.by_release()],
        "package": pipeline.model.package,
        "build": pipeline.model.build,
        "model": pipeline.export.model,
        "slots": pipeline.gang.slots,
        "schedule": pipeline.schedule,
    }


async def _answer(_: Request, error: Exception) -> JSONResponse:
    """Our errors as HTTP. S3 refusing the *server* is the server's trouble, so it is not passed on as the caller's 403."""
    codes = {NotFoundError: status.HTTP_404_NOT_FOUND, ConfigError: status.HTTP_400_BAD_REQUEST, ConflictError: status.HTTP_409_CONFLICT}
    code = next((code for kind, code in codes.items() if isinstance(error, kind)), status.HTTP_503_SERVICE_UNAVAILABLE)
    return JSONResponse({"detail": str(error)}, code)
