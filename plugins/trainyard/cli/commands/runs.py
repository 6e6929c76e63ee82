"""Runs: ``run``, ``backfill``, ``status``, ``logs``, ``cancel``, ``retry``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from trainyard.cli import choosing, live, wheel
from trainyard.cli import logs as log_view
from trainyard.cli.client import BadRequestError, Client
from trainyard.cli.commands.code import package_folder, publish_folder, search_roots
from trainyard.cli.exits import Exit, RunFailedError
from trainyard.cli.following import ENDED, end_event, follow, steps_of
from trainyard.cli.invoking import JsonOption, connected
from trainyard.cli.output import Output, moment, seconds
from trainyard.contract.names import NOTE_CANCELLED, NOTE_RETRIED
from trainyard.errors import ConfigError, NotFoundError, RefusedError, TrainyardError

Pipeline = Annotated[str, typer.Argument(metavar="PIPELINE", help="A pipeline, or TENANT/PIPELINE.")]
Run = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's short name or the start of it, DAG/RUN_ID, or a pipeline for its latest run.")
]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the run's form, e.g. epochs=3; may be given often.")
]
Version = Annotated[str | None, typer.Option("--version", help="Dataset version; the newest released if not given.")]
Follow = Annotated[bool, typer.Option("--follow/--no-follow", help="Stay until the run has ended, and show how it goes.")]


def run(
    pipeline: Pipeline,
    version: Version = None,
    set_: Set = None,
    follow_: Follow = True,
    local: Annotated[
        bool, typer.Option("--local", help="Train in this one process on the real shards: finds the bugs of a model in seconds.")
    ] = False,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="DIR", help="The model package's folder, where it is not found by itself.")
    ] = None,
    publish: Annotated[bool, typer.Option("--publish/--no-publish", help="Publish the model package found here first.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Train a pipeline on a dataset version."""
    out = Output(as_json=as_json)
    if version is not None and not version.strip():
        raise ConfigError("--version is empty: name a version of the dataset, or leave the option out for the newest released")
    with connected() as client:
        known = choosing.ask(client, pipeline, out)
        chosen = choosing.pipeline(pipeline, known)
        values = _values(client, chosen, set_)
        if local and (gang := [name for name in ("workers", "parameter_servers") if name in values]):
            raise ConfigError(f"--local trains in one process, without `{'` and `'.join(gang)}`: leave that out")
        if version:
            choosing.version(version, chosen)
        folder = _package_of(chosen, source, required=local)
        if local:
            from trainyard.cli.local_run import train_here

            raise typer.Exit(train_here(client, chosen, version, values, folder, out))
        if chosen["paused"]:
            raise RefusedError(
                f"pipeline `{chosen['pipeline']}` is paused in Airflow, a run of it would wait for ever: unpause it there first"
            )
        if folder and publish:
            answer = publish_folder(client, folder, chosen, known)
            if answer["changed"]:
                out.remark(f"published {answer['package']} {answer['sha256'][:12]} from {folder}")
        # The newest by name, not by leaving it open: Airflow then knows which version the run is for, and a backfill passes over it.
        started = client.trigger(chosen["dag_id"], version or choosing.newest(chosen), values)
        dag_id, run_id = started["dag_id"], started["dag_run_id"]
        if not follow_:
            document = client.run(dag_id, run_id)
            out.document({"event": "run", **{key: document[key] for key in ("run", "dag_id", "run_id", "dataset_version")}})
            out.line(f"{document['run']} started: `trainyard status {document['run']}`, `trainyard logs {document['run']} -f`")
            return
        _follow_to_the_end(client, dag_id, run_id, out)


def backfill(
    pipeline: Pipeline,
    first: Annotated[str, typer.Option("--from", metavar="VERSION", help="The first dataset version.")],
    last: Annotated[str, typer.Option("--to", metavar="VERSION", help="The last dataset version.")],
    set_: Set = None,
    again: Annotated[
        str, typer.Option(help="Versions already run: `none` passes over them, `failed` or `completed` runs them again.")
    ] = "none",
    at_once: Annotated[int, typer.Option(min=1, max=100, help="Runs at the same time.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which versions would be run.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Train on every dataset version between two."""
    out = Output(as_json=as_json)
    if again not in ("none", "failed", "completed"):
        raise ConfigError(f"--again {again}: it is none, failed or completed")
    with connected() as client:
        chosen = choosing.pipeline(pipeline, choosing.ask(client, pipeline, out))
        values = _values(client, chosen, set_)
        start, end = choosing.version(first, chosen), choosing.version(last, chosen)
        if start["released"] > end["released"]:
            raise ConfigError(f"--from {first} was released after --to {last}: exchange them")
        body = {
            "dag_id": chosen["dag_id"],
            "from_date": start["released"],
            "to_date": end["released"],
            "reprocess_behavior": again,
            "max_active_runs": at_once,
            "dag_run_conf": values or None,
        }
        versions = [item["partition_key"] for item in client.backfill(body, dry_run=True)["backfills"]]
        if not versions:
            out.document({"backfill": None, "versions": []})
            out.line("nothing to do: every version was run already (`--again completed` runs them again)")
            return
        made = None if dry_run else client.backfill(body, dry_run=False)["id"]
    out.document({"backfill": made, "versions": versions})
    out.line(f"{'would train' if dry_run else 'training'} {chosen['pipeline']} on {chosen['dataset']} {', '.join(versions)}")
    if not dry_run:
        out.line(f"see them with `trainyard status {chosen['pipeline']} --all`")


def status(
    run_: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="A run, or a pipeline for its latest; without it, the latest runs of all.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="With a pipeline: its latest runs, not only the last one.")] = False,
    follow_: Annotated[bool, typer.Option("--follow", "-f", help="Stay until the run has ended.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=200, help="Runs shown.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Show the latest runs, or one run."""
    out = Output(as_json=as_json)
    with connected() as client:
        if run_ is None or every:
            runs = client.runs(run_, limit)
            out.document({"runs": runs})
            if not runs:
                out.line("no runs yet: `trainyard run PIPELINE` starts one")
                return
            out.table(["run", "tenant", "version", "state", "outcome", "accuracy", "started", "took"], [_board_row(item) for item in runs])
            return
        found = client.resolve(run_)
        if follow_:
            _follow_to_the_end(client, found["dag_id"], found["run_id"], out)
            return
        document = _read(client, found["dag_id"], found["run_id"])
    out.document(document)
    if not as_json:
        _show_run(document, out)


def logs(
    run_: Run,
    replica: Annotated[
        str | None,
        typer.Argument(metavar="[REPLICA]", help="prepare, chief-0, …, or a role: worker; without it, all."),
    ] = None,
    follow_: Annotated[bool, typer.Option("--follow", "-f", help="Go on while lines are written.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="Only say which replicas have a log, and how long it is.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print what a run's replicas wrote.

    Also while it runs, and after its pods are gone.
    """
    out = Output(as_json=as_json)
    with connected() as client:
        found = client.resolve(run_)
        ids = found["dag_id"], found["run_id"]
        known = client.replicas(*ids)
        if list_ or as_json:
            out.document({"run": found["run"], "replicas": known})
            rows = [
                [r["replica"], a["attempt"], a["bytes"], a["exit_code"], "yes" if a["whole"] else "no"]
                for r in known
                for a in r["attempts"]
            ]
            out.table(["replica", "attempt", "bytes", "exit code", "whole"], rows)
            return
        names = [item["replica"] for item in known]
        if replica is not None and not asked(replica, names) and (not follow_ or client.run(*ids)["state"] in ENDED):
            there = choosing.hint(replica, names) if names else "none of its pods has written a line"
            raise NotFoundError(f"run {found['run']} has no log of `{replica}`; {there}")
        if not names and (state := client.run(*ids)["state"]) in ENDED:
            reason = end_event(_read(client, *ids))["reason"] if state != "success" else None
            why = f": {reason.splitlines()[0]}" if reason else ""
            raise NotFoundError(
                f"run {found['run']} has ended ({state}) before any of its pods wrote a line{why} (`trainyard status {found['run']}`)"
            )
        if not names and not follow_:
            raise NotFoundError(f"run {found['run']} has no logs yet (none of its pods has written a line): `-f` waits for them")

        def replicas() -> tuple[list[str], bool]:
            going_on = follow_ and client.run(*ids)["state"] not in ENDED
            present = [item["replica"] for item in client.replicas(*ids)] if follow_ else names
            if replica is None:
                return present, going_on
            there = asked(replica, present)
            return there, going_on and there != [replica]

        alone = replica is not None and asked(replica, names) in ([replica], [f"{replica}-0"])
        log_view.write(lambda name, cursor: client.log(*ids, name, cursor), replicas, prefix=not alone, follow=follow_)


def asked(replica: str, present: Sequence[str]) -> list[str]:
    """The replicas that a person means: the one of that name, else all of that role (``worker`` is worker-0, worker-1, …)."""
    if replica in present:
        return [replica]
    return [name for name in present if name.rpartition("-")[0] == replica and name.rpartition("-")[2].isdecimal()]


def cancel(
    run_: Run,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Stay until its pods are gone.")] = True,
    as_json: JsonOption = False,
) -> None:
    """End a run; what it has written stays."""
    out = Output(as_json=as_json)
    with connected() as client:
        found = client.resolve(run_)
        document = client.run(found["dag_id"], found["run_id"])
        if document["state"] in ENDED:
            raise BadRequestError(f"run {found['run']} has ended already ({document['state']}): there is nothing to cancel")
        who = client.session.user or client.me()["user"]
        client.mark_failed(found["dag_id"], found["run_id"], f"{NOTE_CANCELLED}{who}")
        if wait:
            document = _wait_for_the_end(client, found)
    out.document({"run": found["run"], "state": document["state"] if wait else "ending"})
    out.line(f"run {found['run']} is cancelled" + ("" if wait else ": its pods are being taken down"))


def retry(run_: Run, follow_: Follow = True, as_json: JsonOption = False) -> None:
    """Let what failed in a run run again.

    What is done stays done, and training goes on from its last checkpoint.
    """
    out = Output(as_json=as_json)
    with connected() as client:
        found = client.resolve(run_)
        document = client.run(found["dag_id"], found["run_id"])
        if document["state"] != "failed":
            raise BadRequestError(
                f"run {found['run']} is `{document['state']}`: only a failed run can be tried again (`trainyard run` starts a new one)"
            )
        # Skipped steps too: they are what a failure or a cancel left out, and the run would end green without them.
        again = sorted({row["step"] for row in document["steps"] if row["state"] != "success"})
        client.note(found["dag_id"], found["run_id"], f"{NOTE_RETRIED}{client.session.user or client.me()['user']}")
        count = client.clear_tasks(found["dag_id"], found["run_id"], again)
        out.remark(f"run {found['run']}: {count} tasks run again, from {', '.join(again)}")
        if follow_:
            _follow_to_the_end(client, found["dag_id"], found["run_id"], out)
        else:
            out.document({"run": found["run"], "tasks": again})


# ------------------------------------------------------------------------------------------------------------------- shared


def _values(client: Client, chosen: dict[str, Any], pairs: list[str] | None) -> dict[str, Any]:
    """``--set`` options against the pipeline's form: Airflow itself takes any key and says nothing."""
    if not pairs:
        return {}
    return choosing.settings(pairs, set(client.form(chosen["dag_id"])) - {"dataset_version"})


def _package_of(chosen: dict[str, Any], source: Path | None, *, required: bool) -> Path | None:
    """The folder of the pipeline's own package on this machine; None if there is none here and none is needed."""
    if not chosen["package"]:
        if source:
            raise ConfigError(f"--from {source}: pipeline `{chosen['pipeline']}` names no package, it trains `{chosen['build']}`")
        return None
    if source:
        return package_folder(source)
    try:
        return wheel.find(chosen["package"], search_roots())
    except NotFoundError:
        if required:
            raise
        return None  # a colleague without the source may train what was published


def _follow_to_the_end(client: Client, dag_id: str, run_id: str, out: Output) -> None:
    name = f"{dag_id}/{run_id}"
    try:
        end = live.show(follow(lambda: _read(client, dag_id, run_id)), out)
    except KeyboardInterrupt:
        out.remark(
            f"\nno longer following; the run goes on. `trainyard status {name} -f` follows it again, `trainyard cancel {name}` ends it"
        )
        raise typer.Exit(Exit.INTERRUPTED) from None
    if not out.as_json:
        _show_end(end, out)
    if end["state"] != "success":
        reason = (end["reason"] or "no reason was given").splitlines()[0]
        raise RunFailedError(f"run {end['run']} {end['outcome'] or 'failed'}: {reason} (`trainyard logs {end['run']}`)")


def _read(client: Client, dag_id: str, run_id: str) -> dict[str, Any]:
    """A run's document; one that failed before any pod could say why gets the words of its first failed task (``failure``)."""
    document = client.run(dag_id, run_id)
    if document["state"] == "failed" and not (document["result"] or {}).get("reason"):
        failed = [row for row in document["steps"] if row["state"] == "failed"]
        failed.sort(key=lambda row: row["step"] == "clean_up")  # it fails since the others did
        if failed:
            row = failed[0]
            try:
                words = client.why_failed(dag_id, run_id, row["step"], row["index"], row["try"])
            except TrainyardError:
                words = None  # its log is gone, or is not the person's to read: the run has failed all the same
            document["failure"] = f"{row['step']}: {words or 'it ended without a word: see its log in Airflow'}"
    return document


def _wait_for_the_end(client: Client, found: dict[str, Any], limit_s: float = 180.0) -> dict[str, Any]:
    deadline = time.monotonic() + limit_s
    while True:
        document = client.run(found["dag_id"], found["run_id"])
        unfinished = [row for row in document["steps"] if row["state"] in ("running", "queued", "scheduled", "restarting")]
        if document["state"] in ENDED and not unfinished:
            return document
        if time.monotonic() > deadline:
            steps = ", ".join(row["step"] for row in unfinished) or "Airflow"
            raise RunFailedError(
                f"run {found['run']} is marked, and after {limit_s:.0f} s still waits for {steps}: see `trainyard status {found['run']}`"
            )
        time.sleep(1)


def _board_row(item: dict[str, Any]) -> list[Any]:
    result = item["result"] or {}
    accuracy = (result.get("metrics") or {}).get("accuracy")
    return [
        item["run"],
        item["tenant"],
        item["dataset_version"],
        item["state"],
        result.get("outcome"),
        accuracy,
        moment(item["start"]),
        seconds(item["seconds"]),
    ]


def _show_run(document: dict[str, Any], out: Output) -> None:
    who = f", asked for by {document['requested_by']}" if document["requested_by"] else ""
    out.line(f"run {document['run']}  ({document['dag_id']} / {document['run_id']})")
    out.line(
        f"{document['state']}; {document['dataset']} {document['dataset_version'] or '(newest)'}; started {moment(document['start'])}{who}"
    )
    if document["progress"] and document["state"] not in ENDED:
        out.line(live.progress(document["progress"]))
    out.table(
        ["step", "state", "tries", "took"], [[row["step"], row["state"], row["try"], seconds(row["seconds"])] for row in steps_of(document)]
    )
    if document["state"] in ENDED:
        _show_end(end_event(document), out)


def _show_end(end: dict[str, Any], out: Output) -> None:
    rows: list[list[Any]] = [["state", end["state"]], ["outcome", end["outcome"]]]
    if end["reason"]:
        rows.append(["reason", end["reason"]])
    rows += [[name, value] for name, value in sorted(end["metrics"].items())]
    rows.append(["dataset version", end["dataset_version"]])
    if end["model_version"]:
        rows.append(["model", f"{end['model']} version {end['model_version']}"])
    rows.append(["took", seconds(end["seconds"])])
    out.table(["", ""], rows)
