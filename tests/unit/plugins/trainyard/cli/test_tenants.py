"""``trainyard tenants``: a table of what the server tells, with what does not agree in red."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Server, Trainyard

RED = "\x1b[1;31m"


def tenant(name: str, **changes: Any) -> dict[str, Any]:
    """A tenant as ``/trainyard/tenants`` tells it."""
    return {
        "tenant": name, "state": "active", "slots": 6, "used": 5, "free": 1, "gpus": 0, "gpus_used": 0,
        "gangs": [{"run": "mnist-cnn-0123456789", "dag_id": f"train_{name}_mnist-cnn", "slots": 5}],
        "waiting": [{"run": "digits-mlp-0123456789", "step": "train", "slots": 3, "for": "3 slots, 1 free"}],
        "quota": {"hard": {"pods": "6"}, "used": {"pods": "5"}}, "quota_text": "pods 5/6", "slot_hours": 12.25, "disagreements": [],
    } | changes  # fmt: skip


def test_the_table_and_what_waits(server: Server, trainyard: Trainyard) -> None:
    server.answers["GET", "/trainyard/tenants"] = 200, {"tenants": [tenant("vision", gpus=2, gpus_used=1)]}
    done = trainyard("tenants")
    assert done.code == 0
    head, row, waiting = done.out.splitlines()
    assert head.split()[:3] == ["tenant", "state", "slots"]
    assert row.split() == ["vision", "active", "5/6", "1", "1/2", "mnist-cnn-0123456789", "(5)", "1", "pods", "5/6", "12.25"]
    assert waiting == "vision: digits-mlp-0123456789 train waits for 3 slots, 1 free"


def test_what_does_not_agree_is_red_and_nothing_else(server: Server, trainyard: Trainyard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    text = "Airflow's pool has 4 slots, the file says 6: `trainyard sync`"
    server.answers["GET", "/trainyard/tenants"] = 200, {"tenants": [tenant("vision"), tenant("tabular", disagreements=[text])]}
    lines = trainyard("tenants").out.splitlines()
    assert RED not in lines[1]
    assert "vision" in lines[1]
    assert f"{RED}tabular" in lines[2]
    assert lines[-1].startswith(f"{RED}tabular: Airflow's pool has 4 slots")


def test_json_is_the_document(server: Server, trainyard: Trainyard) -> None:
    server.answers["GET", "/trainyard/tenants"] = 200, {"tenants": [tenant("vision")]}
    assert trainyard("tenants", "--json").lines == [{"tenants": [tenant("vision")]}]


def test_whoever_is_in_no_team_is_told_so(server: Server, trainyard: Trainyard) -> None:
    server.answers["GET", "/trainyard/tenants"] = 200, {"tenants": []}
    assert trainyard("tenants").out == "no tenant that you may see\n"
