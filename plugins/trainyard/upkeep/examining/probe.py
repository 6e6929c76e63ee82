"""What runs inside a probe's pod: read as text and passed to ``python3 -c``, so that any image with a Python will do.

Not a module of ours at run time: it knows the standard library and nothing else. It prints one JSON document a line, and always ends
with exit code 0 once it has begun: what it saw is the result, whatever it was.

    facts MODULE…            its clock, its Python, and which of these modules the image has
    store                    writes and reads the object that DOCTOR_PUT and DOCTOR_GET (presigned links) name
    listen FIRST LAST        answers on the highest port of these that is free, until it is ended
    reach NAME ADDRESS PORT  resolves NAME, connects to ADDRESS until it answers, then until it no longer does
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import signal
import socket
import ssl
import sys
import time
import urllib.error
import urllib.request
from contextlib import closing
from typing import Any, NoReturn

RESOLVE_S = 40.0
"""For a name: it is there a second or two after its pod has an address, and a "no such name" is remembered for 5 to 30 s."""
CONNECT_S = 40.0
"""For a first connection: a network agent lets nobody near a new pod until it knows it (a second, as measured)."""
WALL_S = 45.0
"""From the first connection until a NetworkPolicy, made meanwhile, must stand between."""
LISTEN_S = 600.0
REFUSALS = 3
"""Failed connections in a row that make a wall: one alone may be chance."""
BODY = b"trainyard doctor"


def say(step: str, **what: Any) -> None:
    """One line of the result."""
    print(json.dumps({"step": step, **what}), flush=True)


def words(error: BaseException) -> str:
    """An error as one line."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def facts(modules: list[str]) -> None:
    found = {name: importlib.util.find_spec(name) is not None for name in modules}
    say("facts", now=time.time(), python=platform.python_version(), modules=found)


def _request(method: str, link: str, body: bytes | None = None) -> dict[str, Any]:
    """One request, again while the server is not reached (not when it answered) and less than :data:`CONNECT_S` have passed."""
    context = ssl.create_default_context(cafile=os.environ.get("AWS_CA_BUNDLE") or None)
    # A proxy that the image's environment names is taken: boto3 in the trainer takes it too.
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
    request = urllib.request.Request(link, data=body, method=method)
    began = time.monotonic()
    while True:
        try:
            with opener.open(request, timeout=10) as answer:
                return {"status": answer.status, "date": answer.headers.get("Date"), "body": answer.read(1000).decode(errors="replace")}
        except urllib.error.HTTPError as error:
            return {"status": error.code, "date": error.headers.get("Date"), "body": error.read(1000).decode(errors="replace")}
        except (OSError, urllib.error.URLError) as error:
            reason = getattr(error, "reason", error)
            certificate = isinstance(reason, ssl.SSLError)
            if certificate or time.monotonic() - began > CONNECT_S:
                return {"error": words(reason) if isinstance(reason, BaseException) else str(reason), "certificate": certificate}
            time.sleep(1)


def store() -> None:
    put = _request("PUT", os.environ["DOCTOR_PUT"], BODY)
    say("put", now=time.time(), **put)
    if put.get("status") == 200:
        got = _request("GET", os.environ["DOCTOR_GET"])
        say("get", same=got.get("body") == BODY.decode(), **got)


def listen(first: int, last: int) -> None:
    for port in range(last, first - 1, -1):
        with closing(socket.socket()) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                server.bind(("", port))
            except OSError:
                continue
            server.listen()
            server.settimeout(LISTEN_S)
            say("listening", port=port)
            while True:
                server.accept()[0].close()
    say("no_port", first=first, last=last)


def _resolve(name: str) -> None:
    began = time.monotonic()
    while True:
        try:
            addresses = sorted({str(info[4][0]) for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)})
            say("resolved", addresses=addresses, seconds=round(time.monotonic() - began, 1))
            return
        except OSError as error:
            if time.monotonic() - began > RESOLVE_S:
                say("unresolved", error=words(error), resolver=_resolver())
                return
            time.sleep(1)


def _resolver() -> str:
    try:
        with open("/etc/resolv.conf", encoding="utf-8") as file:
            return " ".join(line.split()[1] for line in file if line.startswith("nameserver") and len(line.split()) > 1)
    except OSError:
        return ""


def _connects(address: str, port: int) -> str | None:
    """None, or why there is no connection."""
    try:
        socket.create_connection((address, port), timeout=2).close()
    except OSError as error:
        return words(error)
    return None


def reach(name: str, address: str, port: int) -> None:
    _resolve(name)
    began = time.monotonic()
    while (why := _connects(address, port)) is not None:
        if time.monotonic() - began > CONNECT_S:
            say("unreached", error=why)
            return
        time.sleep(0.5)
    say("reached", seconds=round(time.monotonic() - began, 1))
    began, failed = time.monotonic(), 0
    while time.monotonic() - began < WALL_S:
        why = _connects(address, port)
        failed = failed + 1 if why is not None else 0
        if failed == REFUSALS:
            say("walled", error=why, seconds=round(time.monotonic() - began, 1))
            return
        time.sleep(0.5)
    say("open", seconds=round(time.monotonic() - began, 1))


def end(*_: object) -> NoReturn:
    # As PID 1 a Python without a handler would not hear TERM, and its pod take the whole grace period to end.
    sys.exit(0)


def main(arguments: list[str]) -> None:
    signal.signal(signal.SIGTERM, end)
    command, rest = arguments[0], arguments[1:]
    if command == "facts":
        facts(rest)
    elif command == "store":
        store()
    elif command == "listen":
        listen(int(rest[0]), int(rest[1]))
    elif command == "reach":
        reach(rest[0], rest[1], int(rest[2]))
    else:
        raise SystemExit(f"{command}: there is no such probe")


if __name__ == "__main__":
    main(sys.argv[1:])
