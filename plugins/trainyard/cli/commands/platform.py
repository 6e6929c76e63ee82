"""The platform of one's own and the login: ``up``, ``down``, ``login``, ``logout``, ``validate``, ``sync``, ``init``."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from trainyard.cli import places, programs
from trainyard.cli import session as sessions
from trainyard.cli.client import Client
from trainyard.cli.exits import Exit
from trainyard.cli.invoking import JsonOption
from trainyard.cli.output import Output
from trainyard.cli.session import Session
from trainyard.errors import ConfigError, RefusedError

State = Annotated[
    Path | None, typer.Option("--state", metavar="DIR", help="The platform's folder; TRAINYARD_STATE, else var/ of the checkout.")
]


def up(
    state: State = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="NAME", help="A profile in config/clusters/; TRAINYARD_CLUSTER, else the embedded Kubernetes."),
    ] = None,
    port_base: Annotated[
        str | None, typer.Option("--port-base", metavar="N", help="First of its ports, Airflow's; TRAINYARD_PORT_BASE, else 18080.")
    ] = None,
    port: Annotated[list[str] | None, typer.Option("--port", metavar="NAME=N", help="One port by name; may be repeated.")] = None,
    node_cpu: Annotated[int | None, typer.Option(min=1, metavar="N", help="CPUs that the embedded node says it has.")] = None,
    node_memory: Annotated[int | None, typer.Option(min=1, metavar="BYTES", help="Memory that the embedded node says it has.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Start a platform on this machine and log in to it.

    Kubernetes, S3 and Airflow, without root; it stays up until `trainyard down`. With the profile of another cluster, only S3
    (where that is managed) and Airflow are started.
    """
    out = Output(as_json=as_json)
    folder = places.state_folder(state)
    _refuse_another_configuration(folder)
    given = {"--cluster": cluster, "--port-base": port_base, "--node-cpu": node_cpu, "--node-memory": node_memory}
    words = [word for option, value in given.items() if value is not None for word in (option, str(value))]
    words += [word for one in port or [] for word in ("--port", one)]
    if _stack(["up", "--state", str(folder), *words], out):
        raise typer.Exit(Exit.RUN_FAILED)
    platform = places.running_platform(folder)
    if platform and "airflow" in platform:
        session = _administrator(platform)
        path = sessions.save(session)
        out.remark(f"logged in to {session.url} as {session.user} ({path})")
        _say_how_to_log_in(platform["airflow"], out)


def down(state: State = None, as_json: JsonOption = False) -> None:
    """Stop the platform on this machine; its data stays."""
    out = Output(as_json=as_json)
    if _stack(["down", "--state", str(places.state_folder(state))], out):
        raise typer.Exit(Exit.RUN_FAILED)


def login(
    url: Annotated[
        str | None, typer.Argument(metavar="[URL]", help="Airflow's address; without it, the platform that runs on this machine.")
    ] = None,
    user: Annotated[str | None, typer.Option("--user", "-u", help="Asked for if not given.")] = None,
    token: Annotated[
        str | None,
        typer.Option("--token", help="A token made elsewhere, where Airflow's login is not by password; `-` reads it from stdin."),
    ] = None,
    password_stdin: Annotated[bool, typer.Option("--password-stdin", help="Read the password from stdin.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Log in to an Airflow, once."""
    out = Output(as_json=as_json)
    address = sessions.clean_url(url) if url else _address_of_own()
    if token is not None:
        session = Session(address, sys.stdin.readline().strip() if token == "-" else token)
    else:
        name = user or typer.prompt("user", err=True)
        password = sys.stdin.readline().rstrip("\n") if password_stdin else typer.prompt(f"password of {name}", hide_input=True, err=True)
        session = Session(address, _token(address, name, password), name)
    with Client(session) as client:
        try:
            session = Session(address, session.token, client.me()["user"])
        except RefusedError as e:
            raise RefusedError(
                f"{address} does not accept this token: make a new one, or log in by password: `trainyard login {address}`"
            ) from e
    path = sessions.save(session)
    if session.in_clear:
        out.remark(f"warning: {address} is not https: whoever listens on the way can act as you")
    out.document({"url": session.url, "user": session.user})
    out.line(f"logged in to {session.url} as {session.user} (kept in {path})")


def logout(as_json: JsonOption = False) -> None:
    """Forget the login on this machine."""
    out = Output(as_json=as_json)
    was = sessions.forget()
    out.document({"logged_in_before": was})
    out.line("logged out" if was else "nobody was logged in")


def validate(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="A configuration repository; TRAINYARD_CONFIG, else ./config.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a configuration as a whole.

    Every problem is named with its file, key, value and the way out.
    """
    from trainyard.settings import load

    out = Output(as_json=as_json)
    config = places.config_folder(folder)
    try:
        settings = load(config)
    except ConfigError as e:
        out.document({"config": str(config), "problems": list(e.problems)})
        raise
    counts = {kind: len(getattr(settings, kind)) for kind in ("tenants", "datasets", "pipelines")}
    out.document({"config": str(config), "problems": [], **counts})
    out.line(f"{config}: in order ({', '.join(f'{count} {kind}' for kind, count in counts.items())})")


def sync(
    state: State = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what differs.")] = False,
    as_json: JsonOption = False,
) -> None:
    """For administrators: apply the tenants' files.

    Makes Airflow (teams, pools, people), the cluster (namespaces, quotas, secrets) and S3 (buckets, identities) what they say.
    """
    out = Output(as_json=as_json)
    folder = places.state_folder(state)
    platform = places.running_platform(folder)
    for name, value in ((platform or {}).get("environment") or {}).items():
        os.environ.setdefault(name, value)  # what the platform's own processes are told
    os.environ.setdefault("TRAINYARD_CONFIG", str(places.config_folder()))
    from trainyard.settings import load
    from trainyard.upkeep.sync import needs_restart
    from trainyard.upkeep.sync import sync as make_so

    changes = make_so(load(os.environ["TRAINYARD_CONFIG"]), folder, dry_run)
    out.document({"dry_run": dry_run, "changes": [{"what": c.what, "action": c.action, "detail": c.detail} for c in changes]})
    out.table(["what", "action", "detail"], [[c.what, c.action, c.detail] for c in changes])
    if not changes:
        out.line("nothing differs")
    if dry_run or not needs_restart(changes):
        return
    if platform and platform.get("phase") == "up":
        out.remark("Airflow reads some of it only at its start: restarting it (what trains goes on)")
        if _stack(["restart", "airflow", "--state", str(folder)], out):
            raise typer.Exit(Exit.RUN_FAILED)
    elif platform is None:
        out.remark("Airflow reads some of it only at its start: restart its scheduler, DAG processor and API server")


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    tenant: Annotated[str, typer.Option(help="The first team.")] = "myteam",
    as_json: JsonOption = False,
) -> None:
    """Make a configuration repository, ready to run.

    It holds one tenant, a dataset, a pipeline and its model package.
    """
    from trainyard.cli.scaffold import create

    out = Output(as_json=as_json)
    made = create(folder, tenant)
    out.document({"folder": str(folder.resolve()), "files": made})
    for name in made:
        out.line(f"  {folder / name}")
    root = places.checkout()
    command = root / "trainyard" if root else "trainyard"
    out.line(f"next: `{command} validate {folder}`, then TRAINYARD_CONFIG={folder.resolve() / 'config'} for `{command} up`")


# ------------------------------------------------------------------------------------------------------------------- shared


def _stack(arguments: Sequence[str], out: Output) -> int:
    return programs.run("local.stack", arguments, out, "a platform of one's own")


def _refuse_another_configuration(folder: Path) -> None:
    """A platform that is up keeps its configuration: to start it with another would only seem to work.

    Raises:
        ConfigError: ``TRAINYARD_CONFIG`` names another folder than the one that it runs with.
    """
    wanted, platform = os.environ.get("TRAINYARD_CONFIG"), places.running_platform(folder) or {}
    runs_with = (platform.get("environment") or {}).get("TRAINYARD_CONFIG")
    # One that was killed says `up` as well; a start then takes the configuration that is asked for.
    lives = platform.get("phase") == "up" and Path(f"/proc/{(platform.get('starter') or {}).get('pid')}").exists()
    if wanted and runs_with and lives and Path(wanted).resolve() != Path(runs_with).resolve():
        raise ConfigError(
            f"TRAINYARD_CONFIG={wanted}: the platform in {folder} is up, and it runs with {runs_with}: `trainyard down` first"
        )


def _administrator(platform: dict[str, Any]) -> Session:
    """A login as the administrator of the platform on this machine; whoever can read its folder is that already."""
    airflow = platform["airflow"]
    try:
        password = json.loads(Path(airflow["passwords_file"]).read_text())[airflow["admin_user"]]
    except (OSError, ValueError, KeyError) as e:
        raise RefusedError(
            f"{airflow['passwords_file']} does not give the administrator's password ({e}): `trainyard login {airflow['url']}`"
        ) from e
    return Session(airflow["url"], _token(airflow["url"], airflow["admin_user"], password), airflow["admin_user"])


def _token(url: str, user: str, password: str) -> str:
    with Client(Session(url, "", user)) as client:
        try:
            return client.token(user, password)
        except RefusedError as e:
            raise RefusedError(f"{url} does not accept the user `{user}` with this password") from e


def _address_of_own() -> str:
    platform = places.running_platform(places.state_folder()) if places.checkout() else None
    if not platform or "airflow" not in platform or platform.get("phase") != "up":
        raise ConfigError("no platform runs on this machine: give the address of an Airflow, `trainyard login URL`")
    return str(platform["airflow"]["url"])


def _say_how_to_log_in(airflow: dict[str, Any], out: Output) -> None:
    out.line(f"Airflow: {airflow['url']}  (user {airflow['admin_user']}; all passwords: {airflow['passwords_file']})")
