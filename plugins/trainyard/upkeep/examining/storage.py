"""Whether S3 is reached and may be written, from here and from a pod: two networks, and often two addresses.

From here an object is written, read, refused by a condition that does not hold, and removed. A pod gets presigned links for one object, by
a Secret: no key of anybody's leaves this process, and whether a tenant's own key is good is the sync's check.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from trainyard.contract import names
from trainyard.errors import ConfigError, ConflictError, NotFoundError, RefusedError, TrainyardError, UnavailableError
from trainyard.store import Credentials, Store, credentials
from trainyard.store.clients import s3_client, translated
from trainyard.store.opening import bucket_store
from trainyard.upkeep.examining import probe as in_pod
from trainyard.upkeep.examining.finding import Finding, absent, well, wrong
from trainyard.upkeep.examining.patient import Patient

FOLDER: Final = "doctor/"
LINK_S: Final = 900
SECRET: Final = "s3-links"
POD: Final = "s3"
START_S: Final = 120.0
"""The image is on a node by now; on another one it is pulled once more, and the wait says so."""


def from_here(patient: Patient) -> Iterator[Finding]:
    """As Airflow's processes and the administrator's commands see it."""
    s3 = patient.settings.cluster.s3
    try:
        who = credentials(patient.settings)
        store = _store(patient, who)
    except TrainyardError as error:
        yield wrong(str(error), _todo_here(patient, error))
        return
    if store is None:
        yield absent("s3 is external, and no tenant has a bucket yet to write into")
        return
    server, key = store.endpoint or "AWS S3", f"{FOLDER}{patient.mark}-here"
    patient.undo.append(lambda: store.delete(key))
    try:
        try:
            etag = store.put(key, in_pod.BODY)
        except TrainyardError:
            patient.undo.pop()
            raise
        same = store.get(key) == in_pod.BODY
        conditions = _conditions(store, key, etag)
    except TrainyardError as error:
        yield wrong(str(error), _todo_here(patient, error))
        return
    if not same:
        yield wrong(f"{server} gives back other bytes than were written", "is it one S3 server, or several that do not know of each other?")
    elif conditions:
        todo = "use a server with conditional writes (SeaweedFS, MinIO, AWS): generations and champions are moved by them"
        yield wrong(f"{server} writes although {conditions}: two runs could both believe that they were first", todo)
    else:
        patient.bucket = store
        whose = "managed: a bucket was made, used and removed" if s3.mode == "managed" else f"external: in bucket {store.bucket}"
        yield well(f"{server} takes and gives back an object, and honours conditions ({whose})")


def _conditions(store: Store, key: str, etag: str) -> str:
    """Which condition of a write the server ignores; empty where it honours both."""
    try:
        store.put(key, b"second", if_none_match=True)
        return "the object is there (If-None-Match: *)"
    except ConflictError:
        pass
    try:
        store.put(key, b"second", if_match='"00000000000000000000000000000000"')
        return "it has another ETag (If-Match)"
    except (ConflictError, NotFoundError):
        pass
    store.put(key, in_pod.BODY, if_match=etag)
    return ""


def _store(patient: Patient, who: Credentials) -> Store | None:
    """A bucket to write into: one of its own where buckets are ours to make, else the first tenant's; None where there is none."""
    s3 = patient.settings.cluster.s3
    if s3.mode == "external":
        for tenant in sorted(patient.settings.tenants):
            return bucket_store(patient.settings, names.data_bucket(s3.bucket_prefix, tenant), who)
        return None
    store = bucket_store(patient.settings, f"{s3.bucket_prefix}-doctor-{patient.mark}", who)
    client = s3_client(who.endpoint, s3.region, who.access_key, who.secret_key, ca_bundle=who.ca_bundle)

    def remove() -> None:
        try:
            with translated(f"bucket {store.bucket}", who.endpoint):
                client.delete_bucket(Bucket=store.bucket)
        except NotFoundError:
            pass  # interrupted before it was made

    patient.undo.append(remove)
    try:
        with translated(f"bucket {store.bucket}", who.endpoint):
            client.create_bucket(Bucket=store.bucket)
    except TrainyardError:
        patient.undo.pop()
        raise
    return store


def _todo_here(patient: Patient, error: TrainyardError) -> str:
    s3, file = patient.settings.cluster.s3, patient.profile_file
    key = "s3.airflow_endpoint" if s3.airflow_endpoint else "s3.endpoint"
    if isinstance(error, ConfigError):
        return "nothing was asked of S3 yet: correct this first"
    if isinstance(error, NotFoundError):
        return f"make the bucket, or correct s3.bucket_prefix in {file}"
    if isinstance(error, RefusedError):
        return "is the key in TRAINYARD_S3_CREDENTIALS of this server, and may it write?"
    if isinstance(error, UnavailableError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return f"{file}: s3.ca_bundle names the authority that signs its certificate"
    if isinstance(error, UnavailableError):
        return f"{file}: is {key} the server's address as this machine sees it, and does it run?"
    return f"{file}: section s3"


# ------------------------------------------------------------------------------------------------------------------------ pods
def from_pods(patient: Patient) -> Iterator[Finding]:
    """The same object, written and read by a pod at the address that pods are told."""
    store, s3 = patient.bucket, patient.settings.cluster.s3
    if store is None:
        yield absent("there is no bucket to write into")
        return
    server = s3.endpoint or "AWS S3"
    if (urlsplit(server).hostname or "") in ("localhost", "127.0.0.1", "::1") and s3.airflow_endpoint is None:
        loopback = patient.settings.cluster.addressing == "host"
        if not loopback:
            yield wrong(f"pods are told {server}, which is each pod's own loopback", _todo_in_pods(patient, "loopback"))
            return
    key = f"{FOLDER}{patient.mark}-pod"
    patient.undo.append(lambda: store.delete(key))
    as_pods_see_it = replace(store, endpoint=s3.endpoint, public_endpoint=None)
    links = {"put": as_pods_see_it.presign(key, method="PUT", seconds=LINK_S), "get": as_pods_see_it.presign(key, seconds=LINK_S)}
    probes = patient.probes
    probes.secret(SECRET, links)
    variables = {"DOCTOR_PUT": (SECRET, "put"), "DOCTOR_GET": (SECRET, "get")}
    pod = probes.start(POD, "store", secrets=variables, counts_scratch=patient.counts_scratch)
    if not probes.wait(pod, lambda seen: seen.over, START_S + in_pod.CONNECT_S):
        yield wrong(f"the pod that was to write did not end: {pod.refusal or ': '.join(pod.waits) or pod.phase}", "see its line above")
        return
    said = {document["step"]: document for document in probes.said(pod)}
    yield _verdict(patient, server, pod.node or "?", said)


def _verdict(patient: Patient, server: str, node: str, said: dict[str, dict[str, Any]]) -> Finding:
    put, got = said.get("put", {}), said.get("get", {})
    where = f"a pod on node {node}"
    for verb, answer in (("write to", put), ("read from", got)):
        if not answer:
            return wrong(f"{where} ended before it could {verb} {server}", "look at the trainer image: does its python3 work?")
        if "error" in answer:
            kind = "certificate" if answer.get("certificate") else "network"
            return wrong(f"{where} cannot {verb} {server}: {answer['error']}", _todo_in_pods(patient, kind))
        if answer["status"] != 200:
            body = " ".join(str(answer.get("body", "")).split())[:300]
            return wrong(f"{where} may not {verb} {server}: {answer['status']} {body}", _todo_in_pods(patient, "answer"))
    if not got["same"]:
        return wrong(f"{where} read other bytes at {server} than it wrote", "is s3.endpoint the same server as s3.airflow_endpoint?")
    return well(f"{where} writes and reads at {server}")


def _todo_in_pods(patient: Patient, kind: str) -> str:
    file = patient.profile_file
    if kind == "certificate":
        return f"{file}: s3.ca_bundle names the authority that signs its certificate; the server must be called by a name in it"
    if kind == "loopback":
        return f"{file}: s3.endpoint must be an address that pods reach; s3.airflow_endpoint says another one for Airflow"
    if kind == "answer":
        return f"{file}: is s3.endpoint the same server as Airflow's, without something between that changes requests?"
    return f"{file}: s3.endpoint must be an address that pods reach: not loopback, let through by firewalls and by policies on egress"
