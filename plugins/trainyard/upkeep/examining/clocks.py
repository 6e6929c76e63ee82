"""Whose clock is off: the API server's, S3's, each node's, a pod's. S3 refuses a request whose time is 15 minutes off."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Final

from kubernetes import client as k8s

from trainyard.kube.client import ask
from trainyard.upkeep.examining.finding import Finding, doubtful, well, wrong
from trainyard.upkeep.examining.patient import Patient
from trainyard.upkeep.examining.reaching import TIMEOUT

DOUBTFUL_S: Final = 30.0
"""A clock that is off by so much is not kept by anybody."""
WRONG_S: Final = 300.0
"""The limit of most tokens; of S3's 15 minutes a third, and a clock that drifts goes on drifting."""
STALE_LEASE_S: Final = 60.0
"""A kubelet renews its Lease every 10 s, and a node that has not for 40 to 50 s is no longer Ready: on a node that is, an older Lease is
one that its clock has dated back."""
LEASES: Final = "kube-node-lease"


def skew(told: float, earliest: float, latest: float) -> float:
    """By how many seconds a clock that told a time is ahead of ours (negative: behind), if we asked between these two times of ours."""
    if told > latest:
        return told - latest
    return min(told - earliest, 0.0)


def judge(skews: dict[str, float]) -> Iterator[Finding]:
    """One finding on clocks by name and seconds ahead of ours."""
    off = {who: seconds for who, seconds in skews.items() if abs(seconds) >= DOUBTFUL_S}
    if not off:
        yield well(f"within {DOUBTFUL_S:.0f} s of ours: {', '.join(skews)}")
        return
    words = ", ".join(f"{who} is {abs(seconds):.0f} s {'ahead' if seconds > 0 else 'behind'}" for who, seconds in off.items())
    todo = "keep all clocks by NTP (chrony): S3 refuses requests that are 15 minutes off, and certificates have a time to begin"
    if len(off) == len(skews) > 1:
        todo = f"all are off the same way: is this machine's own clock right? {todo}"
    grave = any(abs(seconds) >= WRONG_S for seconds in off.values())
    yield wrong(f"against this machine's clock, {words}", todo) if grave else doubtful(f"against this machine's clock, {words}", todo)


def servers(patient: Patient) -> Iterator[Finding]:
    """The clocks that can be asked without a pod."""
    found = {"the API server": _api_server(patient)}
    s3 = _s3(patient)
    if s3 is not None:
        found["S3"] = s3
    try:
        found |= _nodes(patient)
    except k8s.ApiException as error:
        if error.status != 403:
            raise
    yield from judge(found)


def _api_server(patient: Patient) -> float:
    earliest = patient.now()
    _, _, headers = k8s.VersionApi(patient.api).get_code_with_http_info(_request_timeout=TIMEOUT)
    # The header has whole seconds, cut off.
    return _of_header(headers.get("Date"), earliest, patient.now()) or 0.0


def _s3(patient: Patient) -> float | None:
    """None where the server tells no time, or nothing: that is another check's."""
    s3 = patient.settings.cluster.s3
    endpoint = s3.airflow_endpoint or s3.endpoint or f"https://s3.{s3.region}.amazonaws.com"
    context = ssl.create_default_context(cafile=s3.ca_bundle)
    earliest = patient.now()
    try:
        with urllib.request.urlopen(endpoint, timeout=TIMEOUT[1], context=context) as answer:
            headers = answer.headers
    except urllib.error.HTTPError as error:
        headers = error.headers  # a refusal has the time as well
    except OSError:
        return None
    return _of_header(headers.get("Date"), earliest, patient.now())


def _of_header(date: str | None, earliest: float, latest: float) -> float | None:
    if not date:
        return None
    try:
        return skew(parsedate_to_datetime(date).timestamp(), earliest - 1, latest)
    except ValueError:
        return None


def _nodes(patient: Patient) -> dict[str, float]:
    """Each Ready node's clock, by the Lease that its kubelet renews."""
    ready = {
        node.metadata.name
        for node in ask(patient.core.list_node).items
        if any(c.type == "Ready" and c.status == "True" for c in node.status.conditions or [])
    }
    now = patient.now()
    found = {}
    for lease in ask(k8s.CoordinationV1Api(patient.api).list_namespaced_lease, LEASES).items:
        if lease.metadata.name in ready and lease.spec.renew_time is not None:
            found[f"node {lease.metadata.name}"] = skew(lease.spec.renew_time.timestamp(), now - STALE_LEASE_S, patient.now())
    return found


def pod(patient: Patient) -> Iterator[Finding]:
    """The clock that a pod of ours read, between the last time that it was seen not to run yet and the time that we heard it."""
    probe = patient.pods["trainer"]
    told = float(probe.facts["now"])
    yield from judge({f"a pod on node {probe.node}": skew(told, probe.not_started_at, probe.heard_at)})
