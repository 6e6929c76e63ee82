"""Whom the command speaks for: Airflow's address and a person's token, kept in one file that only they can read.

``TRAINYARD_HOME`` moves the folder (default ``~/.config/trainyard``); ``TRAINYARD_URL`` and ``TRAINYARD_TOKEN`` together win over the file,
for CI machines that keep no files.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from trainyard.errors import ConfigError, RefusedError

_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True)
class Session:
    """One login. ``user`` is for people to read: the token alone decides who is asking."""

    url: str
    token: str
    user: str = ""

    @property
    def on_this_machine(self) -> bool:
        return urlsplit(self.url).hostname in _LOOPBACK

    @property
    def in_clear(self) -> bool:
        """Whether the token would cross a network unencrypted."""
        return urlsplit(self.url).scheme == "http" and not self.on_this_machine


def home() -> Path:
    """The folder of the command's own files."""
    if given := os.environ.get("TRAINYARD_HOME"):
        return Path(given)
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "trainyard"


def session_file() -> Path:
    return home() / "session.json"


def clean_url(text: str) -> str:
    """``text`` as an address without a trailing slash.

    Raises:
        ConfigError: it is not an http or https address.
    """
    url = text.strip()
    if "://" not in url:
        url = f"http://{url}"
    parts = urlsplit(url)
    try:
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        port_is_fine = False
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_fine or parts.query or parts.fragment:
        raise ConfigError(f"`{text}` is not the address of an Airflow: give it like http://127.0.0.1:8080 or https://airflow.example.org")
    if parts.username or parts.password:
        raise ConfigError("an address with a password in it ends up in logs: give the address alone, the command asks for the password")
    return url.rstrip("/")


def load() -> Session:
    """The present login.

    Raises:
        RefusedError: nobody is logged in.
        ConfigError: the file is there and cannot be read.
    """
    url, token = os.environ.get("TRAINYARD_URL"), os.environ.get("TRAINYARD_TOKEN")
    if url and token:
        return Session(clean_url(url), token)
    if url or token:
        missing, given = ("TRAINYARD_TOKEN", "TRAINYARD_URL") if url else ("TRAINYARD_URL", "TRAINYARD_TOKEN")
        raise ConfigError(f"{given} is set and {missing} is not: set both, or neither and use `trainyard login URL`")
    path = session_file()
    try:
        document = json.loads(path.read_text())
        return Session(url=clean_url(document["url"]), token=document["token"], user=document.get("user", ""))
    except FileNotFoundError:
        raise RefusedError(
            "not logged in: `trainyard login URL` with the address of your Airflow (or `trainyard up` for one of your own)"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise ConfigError(f"{path} cannot be read ({e}): log in again with `trainyard login URL`") from e


def save(session: Session) -> Path:
    """Keeps the login; the file is never readable by others, not even for a moment."""
    path = session_file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".session-")  # 0600 from its first moment
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(asdict(session), file, indent=1)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path


def forget() -> bool:
    """Removes the login; says whether there was one."""
    try:
        session_file().unlink()
    except FileNotFoundError:
        return False
    return True
