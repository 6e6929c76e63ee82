"""The client against a small HTTP server of the test's own: errors, time-outs, and watches in pieces."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from local.kubelet.api import Api, ApiError


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: list[tuple[str, str, str, Any]] = []

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.seen.append((self.command, self.path, self.headers.get("Authorization", ""), (self.headers.get("Content-Type"), body)))
        if self.path.startswith("/ok"):
            self.reply(200, b'{"a": 1}')
        elif self.path.startswith("/status"):
            self.reply(409, json.dumps({"kind": "Status", "reason": "Conflict", "message": "the name is taken"}).encode())
        elif self.path.startswith("/html"):
            self.reply(503, b"<html>busy</html>")
        elif self.path.startswith("/torn"):
            self.reply(200, b'{"a": ')
        elif self.path.startswith("/watch"):
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in (b'{"n": 1}\n{"n"', b": 2}\n", b"\n", b'{"n": 3}\n'):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            if self.path.startswith("/watch-cut"):
                self.close_connection = True
            else:
                self.wfile.write(b"0\r\n\r\n")

    def reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PATCH = do_DELETE = answer


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    Handler.seen = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    file = tmp_path / "kubeconfig"
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
    document = {"clusters": [cluster], "users": [{"name": "u", "user": {"token": "secret"}}], "contexts": [context], "current-context": "c"}
    file.write_text(yaml.safe_dump(document))
    yield Api(file)
    server.shutdown()
    server.server_close()
    thread.join()


def test_requests_carry_the_token_and_the_kind_of_patch(api: Api) -> None:
    assert api.get("/ok", fieldSelector="spec.nodeName=n") == {"a": 1}
    assert api.request("PATCH", "/ok", body={"x": 1}, content_type="application/strategic-merge-patch+json") == {"a": 1}
    assert api.request("DELETE", "/ok", body={"gracePeriodSeconds": 0}) == {"a": 1}
    assert Handler.seen[0][:3] == ("GET", "/ok?fieldSelector=spec.nodeName%3Dn", "Bearer secret")
    assert Handler.seen[1][3] == ("application/strategic-merge-patch+json", {"x": 1})
    assert Handler.seen[2][3][1] == {"gracePeriodSeconds": 0}


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [("/status", 409, "^the name is taken$"), ("/html", 503, "503"), ("/torn", 0, "broke off")],
)
def test_errors_are_one_class_with_the_servers_words(api: Api, path: str, status: int, words: str) -> None:
    with pytest.raises(ApiError, match=words) as problem:
        api.get(path)
    assert problem.value.status == status


def test_a_server_that_is_not_there(tmp_path: Path, api: Api) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(file.read_text().replace(api.host, "http://127.0.0.1:1"))
    with pytest.raises(ApiError, match="cannot be reached") as problem:
        Api(file).get("/ok")
    assert problem.value.status == 0


def test_a_watch_is_read_as_lines_however_it_is_cut(api: Api) -> None:
    assert [event["n"] for event in api.watch("/watch", {}, 5.0)] == [1, 2, 3]
    assert Handler.seen[-1][1] == "/watch?watch=1"


def test_a_watch_that_breaks_off_is_an_error_after_what_came(api: Api) -> None:
    seen: list[int] = []
    events = api.watch("/watch-cut", {}, 5.0)
    with pytest.raises(ApiError, match="broke off"):
        seen.extend(event["n"] for event in events)
    assert seen == [1, 2, 3]


def test_a_watch_that_is_refused(api: Api) -> None:
    with pytest.raises(ApiError, match="the name is taken") as problem:
        list(api.watch("/status", {}, 5.0))
    assert problem.value.status == 409
