"""Whether the S3 keys in the tenants' Secrets do what their pods do with them, and no more: each is tried from here, on its own buckets.

On a managed server sync makes them; on an external one an administrator does, by hand, and nothing else would try them before a run.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from kubernetes import client as k8s

from trainyard.contract import names
from trainyard.errors import RefusedError, TrainyardError
from trainyard.kube.client import ask
from trainyard.store import Credentials, Store, credentials
from trainyard.store.opening import bucket_store
from trainyard.upkeep.examining.finding import Finding, absent, well, wrong
from trainyard.upkeep.examining.patient import Patient
from trainyard.upkeep.storage import Identity, identities

BODY: Final = b"trainyard doctor"


def secrets(patient: Patient) -> Iterator[Finding]:
    """Every identity that the tenants' files ask for, by the key in its Secret."""
    problems, tried = [], 0
    admin = credentials(patient.settings)
    for identity in identities(patient.settings):
        held = _held(patient, identity)
        if held is None:
            continue  # its absence is the sync's finding
        tried += 1
        problems += [f"{identity.namespace}/{identity.secret} {words}" for words in _faults(patient, identity, held, admin)]
    if problems:
        todo = "delete the Secret and `trainyard sync`: a new key is made"
        if patient.settings.cluster.s3.mode == "external":
            todo = "give the identity what docs/guides/configuration.md lists under `trainyard sync`, and its key to the Secret"
        yield wrong("; ".join(problems), todo)
    elif not tried:
        yield absent("there are no Secrets with keys yet")
    else:
        yield well(f"{tried} Secrets hold keys that may do what their pods do, and no more")


def _held(patient: Patient, identity: Identity) -> Credentials | None:
    """The key in the identity's Secret; None where there is no such Secret."""
    try:
        data = ask(patient.core.read_namespaced_secret, identity.secret, identity.namespace).data or {}
    except k8s.ApiException as error:
        if error.status == 404:
            return None
        raise
    try:
        access, secret = (base64.b64decode(data[key], validate=True).decode() for key in ("access_key", "secret_key"))
    except (KeyError, binascii.Error, UnicodeDecodeError):
        return Credentials(None, "", "")
    return replace(credentials(patient.settings), access_key=access, secret_key=secret)


def _faults(patient: Patient, identity: Identity, held: Credentials, admin: Credentials) -> Iterator[str]:
    """What this key cannot do and must, or can do and must not."""
    if not held.access_key:
        yield "has no keys access_key and secret_key"
        return
    data, key = bucket_store(patient.settings, identity.bucket, held), f"runs/doctor-{patient.mark}-{identity.secret}"
    # The administrator's key takes away what was written, also where that one must not delete.
    remove = bucket_store(patient.settings, identity.bucket, admin).delete
    if words := _tried(lambda: _write(patient, data, key, remove)):
        yield f"cannot write into runs/ of {identity.bucket}: {words}"
        return
    if identity.tenant is None:
        return
    bucket = names.models_bucket(patient.settings.cluster.s3.bucket_prefix, identity.tenant)
    models, remove = bucket_store(patient.settings, bucket, held), bucket_store(patient.settings, bucket, admin).delete
    model = f"doctor-{patient.mark}/{identity.secret}"
    words = _tried(lambda: _write(patient, models, model, remove))
    if identity.secret == names.SECRET_EXPORT and words:
        yield f"cannot write into {bucket}: {words}"
    elif identity.secret == names.SECRET_RUN and not words:
        yield f"may write into {bucket}: a step that runs users' code could replace a champion"


def _write(patient: Patient, store: Store, key: str, remove: Callable[[str], None]) -> None:
    """Put, read, list and remove one object."""
    patient.undo.append(lambda: remove(key))
    try:
        store.put(key, BODY)
    except RefusedError:
        patient.undo.pop()
        raise
    store.get(key)
    list(store.list(key))
    store.delete(key)


def _tried(call: Callable[[], None]) -> str:
    """Empty, or why it did not work."""
    try:
        call()
    except TrainyardError as error:
        return str(error)
    return ""
