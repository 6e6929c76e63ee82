"""Where things lie on this machine: the checkout, the configuration, the running platform's folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from trainyard.errors import ConfigError, NotFoundError


def checkout() -> Path | None:
    """The repository that this command was installed from, or None where only the package is installed."""
    root = Path(__file__).resolve().parents[3]
    return root if (root / "local" / "stack").is_dir() else None


def need_checkout(what: str) -> Path:
    """The repository, for what cannot be done without it.

    Raises:
        NotFoundError: the command was installed without it.
    """
    root = checkout()
    if root is None:
        raise NotFoundError(
            f"{what} needs the Trainyard repository, and this command was installed without it: use ./trainyard of a checkout"
        )
    return root


def config_folder(given: Path | None = None) -> Path:
    """The folder that holds ``tenants/``, ``datasets/``, ``pipelines/``, ``clusters/``.

    ``given`` (a configuration repository or its ``config/``), else ``TRAINYARD_CONFIG``, else the present folder's, else the checkout's.

    Raises:
        NotFoundError: there is none.
    """
    if given is None and (named := os.environ.get("TRAINYARD_CONFIG")):
        given = Path(named)
    if given is not None:
        candidates = [given, given / "config"]
    else:
        root = checkout()
        candidates = [Path.cwd(), Path.cwd() / "config", *([root / "config"] if root else [])]
    for folder in candidates:
        if (folder / "pipelines").is_dir() and (folder / "tenants").is_dir():
            return folder.resolve()
    looked = ", ".join(str(folder) for folder in candidates)
    raise NotFoundError(
        f"no configuration (tenants/ and pipelines/) in {looked}: name its folder, set TRAINYARD_CONFIG, or `trainyard init DIR`"
    )


def state_folder(given: Path | None = None) -> Path:
    """The folder of the platform of one's own: ``given``, else ``TRAINYARD_STATE``, else ``var/`` of the checkout."""
    if given is not None:
        return given.resolve()
    if named := os.environ.get("TRAINYARD_STATE"):
        return Path(named).resolve()
    return need_checkout("this").joinpath("var")


def running_platform(folder: Path) -> dict[str, Any] | None:
    """What the platform in ``folder`` says of itself (``state.json``), or None when it is not up.

    Raises:
        ConfigError: the file is there and cannot be read.
    """
    path = folder / "state.json"
    try:
        return dict(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as e:
        raise ConfigError(f"{path} cannot be read ({e}): `trainyard down`, then `trainyard up`") from e
