"""Exported models: ``models`` lists them, ``model get`` brings one here, whole and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from trainyard.cli import choosing
from trainyard.cli.download import fetch
from trainyard.cli.invoking import JsonOption, connected
from trainyard.cli.output import Output, moment, size


def models(
    pipeline: Annotated[str | None, typer.Argument(metavar="[PIPELINE]", help="One pipeline's; without it, those of all.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List exported models."""
    out = Output(as_json=as_json)
    with connected() as client:
        if pipeline is None:
            found = client.models(None)["models"]
        else:
            found = [client.models(choosing.pipeline(pipeline, choosing.ask(client, pipeline, out))["dag_id"])]
    out.document({"models": found})
    rows = [_row(item["pipeline"], version) for item in found for version in item["versions"]]
    if rows:
        out.table(["pipeline", "model", "version", "champion", "accuracy", "dataset version", "size", "exported", "run"], rows)
    else:
        out.line("no models yet: a run exports one when it passes its gate")


model = typer.Typer(help="One exported model.", no_args_is_help=True)


@model.command("get")
def get(
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help="The pipeline that exports it.")],
    into: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Where to; <model>/<version> here if not given. It must not exist.")
    ] = None,
    number: Annotated[int | None, typer.Option("--model-version", min=1, help="Which version; the champion if not given.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Download a model: every byte is checked, and the folder appears whole or not at all."""
    out = Output(as_json=as_json)
    with connected() as client:
        chosen = choosing.pipeline(pipeline, choosing.ask(client, pipeline, out))
        found = client.model_files(chosen["dag_id"], str(number) if number else "champion")
    folder = into or Path(found["model"]) / str(found["version"])
    fetch(found["files"], folder, marker=found["marker"])
    facts = {key: found[key] for key in ("model", "version", "champion", "metrics", "dataset_version", "run")}
    out.document(facts | {"folder": str(folder.resolve()), "files": len(found["files"]), "bytes": found["bytes"]})
    out.line(f"{found['model']} version {found['version']}: {len(found['files'])} files, {size(found['bytes'])}, in {folder}")


def _row(pipeline: str, item: dict[str, Any]) -> list[Any]:
    return [
        pipeline,
        item["model"],
        item["version"],
        "champion" if item["champion"] else None,
        (item["metrics"] or {}).get("accuracy"),
        item["dataset_version"],
        size(item["bytes"]),
        moment(item["exported"]),
        item["run"],
    ]
