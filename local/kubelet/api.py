"""The Kubernetes API as the kubelet needs it: plain documents in and out, errors as one class.

The `kubernetes` client carries authentication and connections; its model classes are not used, since a kubelet passes on what it gets
and a status it does not know must survive. Every call has a time-out.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

Json = dict[str, Any]

CONNECT_S, READ_S = 5.0, 30.0
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"


class ApiError(Exception):
    """The API server refused, or could not be reached (status 0)."""

    def __init__(self, status: int, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


def _error(problem: ApiException) -> ApiError:
    """What the server said, without the client's dump of headers."""
    try:
        body = json.loads(problem.body)
        return ApiError(problem.status, str(body["message"]), str(body.get("reason", "")))
    except (TypeError, ValueError, KeyError):
        return ApiError(problem.status or 0, f"{problem.status} {problem.reason}")


def _cause(problem: BaseException) -> str:
    """The innermost reason, such as `Connection refused`, out of the exceptions that urllib3 wraps around it."""
    while (inner := getattr(problem, "reason", None) or problem.__cause__) and isinstance(inner, BaseException):
        problem = inner
    return problem.strerror or str(problem) if isinstance(problem, OSError) else str(problem)


class Api:
    """A connection pool to one API server; safe to use from every thread."""

    def __init__(self, kubeconfig: Path) -> None:
        """Raises kubernetes.config.ConfigException for a file that names no cluster or user."""
        configuration = client.Configuration()
        config.load_kube_config(config_file=str(kubeconfig), client_configuration=configuration)
        configuration.connection_pool_maxsize = 32
        # Retries are the callers' matter: they know what may be repeated, and when to give up.
        configuration.retries = 0
        self.host: str = configuration.host
        self._client = client.ApiClient(configuration)

    def _call(
        self, method: str, path: str, query: dict[str, str], body: Json | None, content_type: str, read_s: float
    ) -> urllib3.HTTPResponse:
        headers = {"Accept": "application/json", "Content-Type": content_type}
        try:
            response: urllib3.HTTPResponse = self._client.call_api(
                path,
                method,
                query_params=list(query.items()),
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _return_http_data_only=True,
                _request_timeout=(CONNECT_S, read_s),
            )
        except ApiException as problem:
            raise _error(problem) from problem
        except (urllib3.exceptions.HTTPError, OSError) as problem:
            raise ApiError(0, f"{self.host} cannot be reached: {_cause(problem)}") from problem
        if not 200 <= response.status <= 299:
            body_text = response.read().decode("utf-8", "replace")
            response.release_conn()
            refused = ApiException(status=response.status, reason=response.reason)
            refused.body = body_text
            raise _error(refused)
        return response

    def request(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: Json | None = None,
        content_type: str = "application/json",
    ) -> Json:
        """One call. Raises ApiError."""
        response = self._call(method, path, query or {}, body, content_type, READ_S)
        try:
            document: Json = json.loads(response.read())
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as problem:
            raise ApiError(0, f"{self.host}: answer to {method} {path} broke off: {problem}") from problem
        finally:
            response.release_conn()
        return document

    def get(self, path: str, **query: str) -> Json:
        """GET. Raises ApiError."""
        return self.request("GET", path, query=query)

    def watch(self, path: str, query: dict[str, str], read_s: float) -> Iterator[Json]:
        """Events of a watch as they come, until the server ends it. Raises ApiError, also when nothing comes for `read_s`."""
        response = self._call("GET", path, {**query, "watch": "1"}, None, "application/json", read_s)
        try:
            rest = b""
            for chunk in response.stream(65536):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield json.loads(line)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as problem:
            raise ApiError(0, f"watch of {path} broke off: {problem}") from problem
        finally:
            response.close()
