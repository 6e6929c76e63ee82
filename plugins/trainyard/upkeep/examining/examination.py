"""The doctor's list: which checks there are, in which order, and what each stands on. Cheap ones first, pods last."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from kubernetes import client as k8s

from trainyard.errors import TrainyardError
from trainyard.kube.client import is_transient
from trainyard.kube.quota import message_of
from trainyard.upkeep.examining import clocks, keys, network, nodes, pods, reaching, rights, storage, tenants
from trainyard.upkeep.examining.finding import Finding, well, wrong
from trainyard.upkeep.examining.patient import Patient


@dataclass(frozen=True)
class Check:
    """One thing that is tried."""

    name: str
    run: Callable[[Patient], Iterator[Finding]]
    needs: tuple[str, ...] = ()
    """Checks without which this one would only repeat their failure."""


def _namespace(patient: Patient) -> Iterator[Finding]:
    """The namespace of the examination's own pods; what earlier doctors left goes."""
    for name in patient.probes.sweep():
        patient.remark(f"namespace {name}, left by a doctor that was killed, is being removed")
    patient.probes.open()
    yield well(f"{patient.probes.name} is made for the pods that follow; it goes at the end")


CHECKS: Final = (
    Check("api", reaching.api),
    Check("version", reaching.version, ("api",)),
    Check("identities", reaching.identities, ("api",)),
    Check("rights", rights.ours, ("api", "version")),
    Check("s3", storage.from_here),
    Check("clocks", clocks.servers, ("api",)),
    Check("nodes", nodes.scratch, ("api", "rights")),
    Check("size", nodes.size, ("nodes",)),
    Check("sync", tenants.synced, ("identities", "version", "s3")),
    Check("keys", keys.secrets, ("api", "rights", "s3")),
    Check("airflow rights", rights.airflow, ("identities", "rights")),
    Check("quota", tenants.room, ("api", "rights")),
    Check("namespace", _namespace, ("rights",)),
    Check("jobs", reaching.jobs, ("namespace",)),
    Check("scheduling", pods.scheduling, ("namespace",)),
    Check("trainer image", pods.trainer_image, ("scheduling",)),
    Check("airflow image", pods.airflow_image, ("scheduling",)),
    Check("pod clock", clocks.pod, ("trainer image",)),
    Check("s3 from pods", storage.from_pods, ("s3", "trainer image")),
    Check("dns", network.names, ("trainer image",)),
    Check("pod network", network.connections, ("trainer image",)),
    Check("network policy", network.policy, ("pod network",)),
)


def examine(patient: Patient, checks: Iterable[Check] | None = None) -> Iterator[Finding]:
    """Every check (or these) in turn; one that stands on a failed one is not tried, and says on which.

    What was made for it is gone when ``patient`` is closed, not before.
    """
    culprits: dict[str, str] = {}
    """Each check that is not well → the one that it is for: itself, or what it stands on in the end."""
    for check in CHECKS if checks is None else checks:
        culprit = next((culprits[name] for name in check.needs if name in culprits), None)
        if culprit is not None:
            culprits[check.name] = culprit
            yield Finding("not_tried", f"stands on `{culprit}`", check=check.name)
            continue
        for finding in _carefully(check, patient):
            if finding.state in ("failed", "not_tried"):
                culprits[check.name] = check.name
            yield replace(finding, check=check.name)


def _carefully(check: Check, patient: Patient) -> Iterator[Finding]:
    """What a check says, or what it fell over, as a finding."""
    try:
        yield from check.run(patient)
    except TrainyardError as error:
        yield wrong(str(error), "see the lines above; the same command may work later")
    except k8s.ApiException as error:
        if error.status == 403:
            yield wrong(f"the API server refuses: {message_of(error)}", "examine with an administrator's: --kubeconfig FILE")
        else:
            yield wrong(
                f"the API server answered {error.status} {message_of(error)}", "is that the cluster's own word, or an admission policy's?"
            )
    except Exception as error:
        if not is_transient(error):
            raise
        yield wrong(f"the API server does not answer: {error}", "the same command may work later")
