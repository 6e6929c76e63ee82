"""``trainyard tenant``: the tenants' files, as a person with the configuration at hand changes them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainyard.cli import places
from trainyard.cli.invoking import JsonOption
from trainyard.cli.output import Output
from trainyard.errors import ConfigError

tenant = typer.Typer(help="For administrators: a tenant's file.", no_args_is_help=True)


@tenant.callback()
def _group() -> None:
    """Makes `add` a subcommand though it is the only one."""


@tenant.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The file's and the team's name: 3–30 lower-case letters, digits, dashes.")],
    owner: Annotated[str | None, typer.Option(help="Who answers for it; by default its name.")] = None,
    contact: Annotated[str | None, typer.Option(help="Where to reach the owner: an address or a channel.")] = None,
    slots: Annotated[int, typer.Option(help="How many slots it has: pool, quota and limits come from this number.")] = 4,
    cpu: Annotated[str, typer.Option(help="Cores of one slot.")] = "750m",
    memory: Annotated[str, typer.Option(help="Memory of one slot.")] = "2Gi",
    scratch: Annotated[str, typer.Option(help="Working directory of one slot.")] = "2Gi",
    gpus: Annotated[int, typer.Option(help="How many GPUs it has.")] = 0,
    member: Annotated[list[str] | None, typer.Option(metavar="LOGIN[:ROLE]", help="One of its people; role `user` or `viewer`.")] = None,
    config: Annotated[Path | None, typer.Option(metavar="DIR", help="The configuration's folder.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a tenant's file, in order as it is."""
    from trainyard.cli.tenant_file import NewTenant, write

    out = Output(as_json=as_json)
    people: dict[str, str] = {}
    for text in member or ():
        login, _, role = text.partition(":")
        if login in people:
            raise ConfigError(f"--member {text}: {login} is given twice: remove one")
        people[login] = role or "user"
    new = NewTenant(name, name if owner is None else owner, contact or owner or name, slots, cpu, memory, scratch, gpus, people)
    path = write(places.config_folder(config), new)
    out.document({"tenant": name, "file": str(path)})
    out.line(f"{path}")
    out.line("next: look it over, then `trainyard sync --dry-run` and `trainyard sync`; Airflow is restarted once, and no run ends by that")
