"""The ``trainyard`` command: its subcommands, in the order in which people meet them."""

from __future__ import annotations

from typing import Annotated

import typer

from trainyard.cli.commands import cluster, code, doctor, images, models, platform, runs, tenant, tenants
from trainyard.cli.invoking import App

app = App(
    name="trainyard",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Distributed TensorFlow training, from a dataset version to an exported model.\n\n"
    "Exit codes: 0 done, 1 what was started failed, 2 wrong input, 3 not reachable, 4 not logged in or not allowed.",
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"trainyard {version('trainyard')}")
        except PackageNotFoundError:
            print("trainyard (from a checkout)")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version and end.")] = False,
) -> None:
    """Options of the command as a whole."""


for command in (
    platform.init,
    platform.up,
    platform.down,
    platform.login,
    platform.logout,
    platform.validate,
    code.publish,
    runs.run,
    runs.backfill,
    runs.status,
    runs.logs,
    runs.cancel,
    runs.retry,
    models.models,
    tenants.tenants,
    platform.sync,
    doctor.doctor,
):
    app.command(command.__name__)(command)
app.add_typer(models.model, name="model")
app.add_typer(cluster.cluster, name="cluster")
app.add_typer(images.images, name="images")
app.add_typer(tenant.tenant, name="tenant")

if __name__ == "__main__":
    app()
