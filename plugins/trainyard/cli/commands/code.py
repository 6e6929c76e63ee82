"""``trainyard publish``: the user's package goes to the tenant's store, by digest."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from trainyard.cli import choosing, places, wheel
from trainyard.cli.choosing import Known
from trainyard.cli.client import Client
from trainyard.cli.invoking import JsonOption, connected
from trainyard.cli.output import Output, size
from trainyard.errors import ConfigError, NotFoundError


def publish(
    what: Annotated[
        str, typer.Argument(metavar="PIPELINE|DIR", help="A pipeline, whose package is looked for below here, or the package's folder.")
    ] = ".",
    source: Annotated[
        Path | None, typer.Option("--from", metavar="DIR", help="The package's folder, where it is not found by itself.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Publish a model package for later runs.

    Nothing of it is executed here: it is packed as it is, and refused if it has a syntax error or lacks what its pipelines name.
    """
    out = Output(as_json=as_json)
    with connected() as client:
        known = choosing.ask(client, what, out)
        looks_like_folder = what in (".", "..") or os.sep in what or (Path(what) / "__init__.py").is_file()
        if known.named(what) or not looks_like_folder:
            chosen = choosing.pipeline(what, known)
            if not chosen["package"]:
                raise ConfigError(
                    f"pipeline `{chosen['pipeline']}` trains Trainyard's own `{chosen['build']}`: there is nothing to publish"
                )
            folder = source or wheel.find(chosen["package"], search_roots())
        else:
            folder = package_folder(source or Path(what))
            users = [p for p in known.pipelines if p["package"] == folder.resolve().name]
            if not users:
                packages = ", ".join(sorted({p["package"] for p in known.pipelines if p["package"]})) or "none"
                raise NotFoundError(
                    f"no pipeline that you may see names the package `{folder.resolve().name}` (they name: {packages}): "
                    f"write `package: {folder.resolve().name}` into the pipeline's `model:`"
                )
            tenants = sorted({p["tenant"] for p in users})
            if len(tenants) > 1:
                raise ConfigError(
                    f"package `{folder.resolve().name}` is used by tenants {', '.join(tenants)}: `trainyard publish TENANT/PIPELINE`"
                )
            chosen = users[0]
        answer = publish_folder(client, folder, chosen, known)
    out.document(answer)
    word = "published" if answer["changed"] else "already the newest"
    out.line(f"{answer['package']} {answer['sha256'][:12]}  {word}  ({answer['files']} files, {size(answer['size'])}; from {folder})")


def publish_folder(client: Client, folder: Path, chosen: dict[str, Any], known: Known) -> dict[str, Any]:
    """Packs, checks and sends the package of ``folder`` for the pipeline ``chosen``.

    Raises:
        ConfigError: a syntax error, or no function of the name that one of the tenant's pipelines builds its model by.
    """
    made = wheel.build(folder)
    if made.package != chosen["package"]:
        raise ConfigError(f"{folder} holds the package `{made.package}`, and pipeline `{chosen['pipeline']}` names `{chosen['package']}`")
    for user in known.pipelines:
        if user["tenant"] == chosen["tenant"] and user["package"] == made.package:
            wheel.check_build(folder.resolve(), user["build"])
    return client.publish(chosen["dag_id"], made.data, made.sha256) | {"files": made.files}


def package_folder(path: Path) -> Path:
    """The package that a folder is, or the only one that it holds (directly, or in ``src/``).

    Raises:
        NotFoundError: no package, or more than one.
    """
    if not path.is_dir():
        raise NotFoundError(f"{path} is neither a pipeline nor a folder")
    if (path / "__init__.py").is_file():
        return path
    found = sorted(
        init.parent
        for pattern in ("*/__init__.py", "src/*/__init__.py")
        for init in path.glob(pattern)
        if not init.parent.name.startswith(".")
    )
    if len(found) == 1:
        return found[0]
    what = "no package (a folder with an __init__.py)" if not found else f"several packages ({', '.join(p.name for p in found)})"
    raise NotFoundError(f"{what} in {path.resolve()}: name the package's own folder or the pipeline")


def search_roots() -> list[Path]:
    """Where a package is looked for: here, and beside the configuration (a configuration repository holds the models too)."""
    roots = [Path.cwd()]
    try:
        beside = places.config_folder().parent
    except NotFoundError:
        return roots
    return roots if beside.is_relative_to(roots[0].resolve()) else [*roots, beside]
