"""Tenants come and change while a training runs: a changed one costs no restart, a new one costs one, and no run is lost by either."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.platform import Platform, until

pytestmark = pytest.mark.long


def reconcile(platform: Platform, **conf: Any) -> str:
    """A round of the platform's own DAG; the state that it ended in."""
    started = platform.api("POST", "/dags/reconcile_tenants/dagRuns", json={"logical_date": None, "conf": conf})
    assert started.status_code == 200, started.text
    path = f"/dags/reconcile_tenants/dagRuns/{started.json()['dag_run_id'].replace('+', '%2B').replace(':', '%3A')}"
    until(lambda: platform.api("GET", path).json()["state"] in ("success", "failed"), 180, "the round has ended", every_s=1)
    return str(platform.api("GET", path).json()["state"])


def pool(platform: Platform, tenant: str) -> int | None:
    found = platform.api("GET", f"/pools/tenant-{tenant}")
    return int(found.json()["slots"]) if found.status_code == 200 else None


def test_a_changed_tenant_costs_no_restart_and_a_new_one_loses_no_run(platform: Platform) -> None:
    run = platform.begin("digits-long", "--set", "steps=20000")["run"]
    scheduler = platform.pid("airflow-scheduler")

    tabular = platform.config / "tenants" / "tabular.yaml"
    tabular.write_text(tabular.read_text().replace("slots: 4", "slots: 5"))
    assert reconcile(platform, dry_run=True) == "success"
    assert pool(platform, "tabular") == 4
    assert reconcile(platform) == "success"
    assert pool(platform, "tabular") == 5
    assert platform.core().read_namespaced_resource_quota("tenant", "tenant-tabular").spec.hard["pods"] == "5"
    assert platform.pid("airflow-scheduler") == scheduler

    platform.wait_for_training(run, step=100, within_s=280)
    added = platform.trainyard("tenant", "add", "newcomers", "--config", str(platform.config))
    assert added.code == 0, added.err
    assert reconcile(platform) == "failed", "only `trainyard sync` makes a team"
    synced = platform.trainyard("sync", "--state", str(platform.state))
    assert synced.code == 0, f"{synced.out} {synced.err}"
    assert platform.pid("airflow-scheduler") != scheduler
    assert pool(platform, "newcomers") == 4
    assert reconcile(platform) == "success"

    seen = {tenant["tenant"]: tenant for tenant in platform.trainyard("tenants", "--json").document["tenants"]}
    assert set(seen) >= {"vision", "tabular", "forecast", "newcomers"}
    assert (seen["forecast"]["state"], seen["forecast"]["slots"]) == ("drained", 0)
    assert [text for tenant in seen.values() for text in tenant["disagreements"]] == []
    assert [gang["run"] for gang in seen["vision"]["gangs"]] == [run]

    ended = platform.wait_for_end(run, within_s=900)
    assert (ended["state"], ended["generation"]) == ("success", 1), "the gang was adopted, not begun again"

    # Once more, with nothing changed: nothing to do, and no restart.
    scheduler = platform.pid("airflow-scheduler")
    assert "nothing differs" in platform.trainyard("sync", "--state", str(platform.state)).out
    assert platform.pid("airflow-scheduler") == scheduler
