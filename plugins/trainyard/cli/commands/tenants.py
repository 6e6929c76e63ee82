"""``trainyard tenants``: who has how many slots, what holds them, what waits and for what."""

from __future__ import annotations

from typing import Any

from trainyard.cli.invoking import JsonOption, connected
from trainyard.cli.output import Output, Wrong

COLUMNS = ("tenant", "state", "slots used", "free", "GPUs", "gangs", "waiting", "quota in the cluster", "slot-hours this month")


def tenants(as_json: JsonOption = False) -> None:
    """Show the tenants' slots: your own team's, or all for an administrator.

    What is red is where the file, Airflow and the cluster do not say the same.
    """
    out = Output(as_json=as_json)
    with connected() as client:
        found = client.tenants()
    out.document({"tenants": found})
    if not found:
        out.line("no tenant that you may see")
        return
    out.table(COLUMNS, [_row(tenant) for tenant in found])
    for tenant in found:
        for waiting in tenant["waiting"]:
            out.line(f"{tenant['tenant']}: {waiting['run']} {waiting['step']} waits for {waiting['for']}")
    for tenant in found:
        for text in tenant["disagreements"]:
            out.line(Wrong(f"{tenant['tenant']}: {text}"))


def _row(tenant: dict[str, Any]) -> list[Any]:
    used = f"{tenant['used']}/{tenant['slots']}"
    quota = tenant["quota_text"] or "?"
    wrong = bool(tenant["disagreements"])
    gpus = f"{'?' if tenant['gpus_used'] is None else tenant['gpus_used']}/{tenant['gpus']}" if tenant["gpus"] else None
    return [
        Wrong(tenant["tenant"]) if wrong else tenant["tenant"],
        tenant["state"],
        used,
        tenant["free"],
        gpus,
        ", ".join(f"{gang['run']} ({gang['slots']})" for gang in tenant["gangs"]) or None,
        len(tenant["waiting"]) or None,
        Wrong(quota) if wrong else quota,
        tenant["slot_hours"],
    ]
