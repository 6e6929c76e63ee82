"""Whether the API server is reached, is the one that it should be, knows us, and is new enough for a gang."""

from __future__ import annotations

import base64
import json
import os
import re
import ssl
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from kubernetes import client as k8s
from urllib3.exceptions import HTTPError

from trainyard.errors import TrainyardError
from trainyard.kube.client import client
from trainyard.kube.quota import message_of
from trainyard.settings.loading import DEFAULT_CLUSTER
from trainyard.upkeep.examining.finding import Finding, absent, doubtful, well, wrong
from trainyard.upkeep.examining.patient import Patient

TIMEOUT: Final = (5.0, 10.0)
"""Seconds to connect and of silence: a server that is there answers in milliseconds."""
PROXIES: Final = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")
"""What the Kubernetes client takes a proxy from."""

DAY_S: Final = 86_400.0
TOKEN_SOON_S: Final = 7 * DAY_S
NEW_TOKEN: Final = "make a new kubeconfig over the old file (ours: deploy/kubeconfig ACCOUNT)"

_EVICTIONS: Final = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}
FEATURES: Final[tuple[tuple[str, object, int, str], ...]] = (
    ("backoffLimitPerIndex", 1, 29, "a lost worker is replaced alone"),
    ("maxFailedIndexes", 0, 29, "one replica that fails for good ends its Job; without it the gang would stay for ever"),
    ("podReplacementPolicy", "Failed", 29, "no second pod of a replica while the first may still run"),
    ("podFailurePolicy", _EVICTIONS, 26, "evictions count as nobody's failure, and final exit codes are not tried again"),
)
"""Fields of a Job that a gang stands on: name, a value, the minor version from which they are on by default (beta), and what for.
https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates/: JobBackoffLimitPerIndex, JobPodReplacementPolicy,
JobPodFailurePolicy. The last of them is generally available from 1.34 on."""
POLICIES: Final = (30, "ValidatingAdmissionPolicy (it keeps the sync identity of deploy/rbac to namespaces of ours)")
LEAST_MINOR: Final = max(POLICIES[0], *(minor for _, _, minor, _ in FEATURES))
SURE_MINOR: Final = 34
"""From here on none of them can be switched off; it is also the version that Trainyard's own tests run on."""


def api(patient: Patient) -> Iterator[Finding]:
    """One call to the API server that only somebody whom it knows gets an answer to."""
    yield _asked(lambda: patient.api, patient.settings.cluster.kubeconfig, patient)


def identities(patient: Patient) -> Iterator[Finding]:
    """The same for the kubeconfigs of Airflow and of sync, where they are others than ours; and for how long their tokens are good."""
    profile, ours = patient.settings.cluster, patient.settings.cluster.kubeconfig
    files = (("sync", profile.sync_kubeconfig), ("Airflow", patient.airflow_kubeconfig))
    named = {path: who for who, path in files if path and path != ours}
    if not named:
        yield absent("Airflow and sync have no kubeconfigs of their own here")
    for path, who in named.items():
        finding = _asked(lambda path=path: client(path), path, patient)  # type: ignore[misc]
        yield replace(finding, saw=f"{who}: {finding.saw}")


def _asked(client_of: Callable[[], k8s.ApiClient], kubeconfig: str | None, patient: Patient) -> Finding:
    """Who the API server says that we are, or why it does not."""
    where = f"kubeconfig {kubeconfig}" if kubeconfig else "the service account of this pod"
    try:
        api_client = client_of()
    except TrainyardError as error:
        todo = f"{patient.profile_file}: `kubeconfig`, TRAINYARD_KUBECONFIG or --kubeconfig name the cluster's"
        started = patient.settings.cluster.name == DEFAULT_CLUSTER and kubeconfig is None
        return wrong(str(error), "`trainyard up` starts it" if started else todo)
    host = api_client.configuration.host
    ends_in = _token_ends_in(api_client.configuration, patient.now())
    if ends_in is not None and ends_in <= 0:
        return wrong(f"the token of {where} ended {-ends_in / DAY_S:.1f} days ago", NEW_TOKEN)
    try:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = k8s.AuthenticationV1Api(api_client).create_self_subject_review(review, _request_timeout=TIMEOUT)
    except k8s.ApiException as error:
        if not error.status:
            # The client library's own: a TLS failure comes as an ApiException without a status.
            return _unreached(error, host, where)
        if error.status == 401:
            return wrong(
                f"{host} does not know us (401 {message_of(error)})", f"{where}: its token or certificate is not good: {NEW_TOKEN}"
            )
        if error.status == 404:
            # Too old to say who we are; the version's check has the words.
            return well(f"{host} answers")
        return wrong(f"{host} answered {error.status} {message_of(error)}", "is it the API server, and not something before it?")
    except (HTTPError, OSError) as error:
        return _unreached(error, host, where)
    saw = f"{host} knows us as {answer.status.user_info.username}"
    if ends_in is not None and ends_in < TOKEN_SOON_S:
        return doubtful(f"{saw}; the token of {where} ends in {ends_in / DAY_S:.1f} days", NEW_TOKEN)
    return well(saw)


def _token_ends_in(configuration: k8s.Configuration, now: float) -> float | None:
    """Seconds until the token of a service account ends; None for one that does not say it, and for other ways to be known."""
    token = str(configuration.api_key.get("authorization") or configuration.api_key.get("BearerToken") or "").removeprefix("Bearer ")
    try:
        payload = token.split(".")[1]
        ends = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))).get("exp")
    except (IndexError, ValueError, AttributeError):
        return None
    return float(ends) - now if isinstance(ends, int | float) else None


def _unreached(error: BaseException, host: str, where: str) -> Finding:
    reason = _innermost(error)
    proxy = next((f"{name}={os.environ[name]}" for name in PROXIES if os.environ.get(name)), None)
    hint = f" ({proxy} stands between: NO_PROXY names what goes past it)" if proxy else ""
    words = str(reason) or type(reason).__name__
    if isinstance(reason, ssl.SSLCertVerificationError):
        if "Hostname mismatch" in words or "IP address mismatch" in words:
            todo = f"{where}: `server` names it otherwise than its certificate does: write a name that it has, or add `tls-server-name`"
        else:
            todo = f"{where}: `certificate-authority-data` is not the authority that signed its certificate: take the cluster's own{hint}"
        return wrong(f"{host} shows a certificate that the kubeconfig's authority does not vouch for: {words}", todo)
    if isinstance(reason, ssl.SSLError):
        return wrong(f"no TLS connection to {host}: {words}", f"{where}: is `server` the API server's address and port?{hint}")
    return wrong(
        f"{host} is not reached: {words}", f"{where}: is `server` right, does the cluster run, does a firewall let us through?{hint}"
    )


def _innermost(error: BaseException) -> BaseException:
    """urllib3 wraps what happened up to three times."""
    while True:
        candidates: list[Any] = [getattr(error, "reason", None), *error.args[:1], error.__cause__]
        inner = next((one for one in candidates if isinstance(one, BaseException) and one is not error), None)
        if inner is None:
            return error
        error = inner


def version(patient: Patient) -> Iterator[Finding]:
    """New enough for the fields that a gang's Jobs stand on; a switched-off one is found by :func:`fields_that_are_dropped`."""
    told = k8s.VersionApi(patient.api).get_code(_request_timeout=TIMEOUT)
    name, minor = told.git_version, _minor(told.minor)
    if (_minor(told.major), minor) < (1, LEAST_MINOR):
        lacking = [f"{field} of a Job (from 1.{since} on: {why})" for field, _, since, why in FEATURES if minor < since]
        lacking += [f"{POLICIES[1]} from 1.{POLICIES[0]} on"] if minor < POLICIES[0] else []
        yield wrong(f"Kubernetes {name} lacks what Trainyard stands on: {'; '.join(lacking)}", f"use a cluster of 1.{LEAST_MINOR} or newer")
    elif minor < SURE_MINOR:
        yield well(f"Kubernetes {name}; what a gang stands on is there, though until 1.{SURE_MINOR} an administrator can switch it off")
    else:
        yield well(f"Kubernetes {name}")


def _minor(text: str) -> int:
    """``34+`` (as some vendors say) → 34."""
    found = re.match(r"\d+", text or "")
    return int(found[0]) if found else 0


def jobs(patient: Patient) -> Iterator[Finding]:
    """A gang's Job in a dry run: an API server drops the fields of a feature that is off, and says nothing."""
    namespace = patient.probes.name
    asked = {name: value for name, value, _, _ in FEATURES}
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": patient.settings.cluster.images.trainer}]}}
    spec = {"completionMode": "Indexed", "completions": 1, "parallelism": 1, "template": template, **asked}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "doctor"}, "spec": spec}
    made = k8s.BatchV1Api(patient.api).create_namespaced_job(namespace, body, dry_run="All", _request_timeout=TIMEOUT)
    kept = patient.api.sanitize_for_serialization(made)["spec"]
    yield from fields_that_are_dropped(kept)


def fields_that_are_dropped(kept: dict[str, Any]) -> Iterator[Finding]:
    """One finding for all fields of :data:`FEATURES` that a Job's spec, as the API server gave it back, has lost."""
    dropped = [(name, why) for name, _, _, why in FEATURES if name not in kept]
    if dropped:
        words = "; ".join(f"{name} ({why})" for name, why in dropped)
        gates = "JobBackoffLimitPerIndex, JobPodReplacementPolicy and JobPodFailurePolicy"
        yield wrong(f"the API server drops fields of a gang's Job: {words}", f"switch the feature gates {gates} on, or use a newer cluster")
    else:
        yield well(f"a gang's Job keeps {', '.join(name for name, _, _, _ in FEATURES)}")
