"""Nobody gets anything from the app that Airflow would not give them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fastapi.routing import APIRoute

from trainyard.cli import wheel
from trainyard.contract import keys

if TYPE_CHECKING:
    from conftest import World

VISION = "train_vision_digits-mlp"
TABULAR = "train_tabular_digits-own"


def _requests(world: World, dag_id: str) -> list[tuple[str, str]]:
    """Every address of the app, with its parameters filled in."""
    values = {"dag_id": dag_id, "run_id": "r1", "replica": "chief-0", "version": "1"}
    routes = [route for route in world.app.routes if isinstance(route, APIRoute)]
    assert len(routes) > 8
    found = []
    for route in routes:
        for method in route.methods:
            query = "?run=x" if route.path == "/resolve" else f"?sha256={'0' * 64}" if route.path.startswith("/packages") else ""
            found.append((method, route.path.format(**values) + query))
    return found


def test_every_address_asks_who_is_there(world: World) -> None:
    for method, path in _requests(world, VISION):
        assert world.ask(None, method, path).status_code == 401, path
        assert world.ask("mallory", method, path).status_code == 403, path


def test_the_app_has_no_other_addresses(world: World) -> None:
    """FastAPI's own pages would tell anyone what there is to ask."""
    assert [route for route in world.app.routes if not isinstance(route, APIRoute)] == []


def test_another_teams_dag_is_refused_everywhere(world: World) -> None:
    world.airflow.add(VISION, "r1", "success")
    world.store().put(f"{keys.logs('digits-mlp-x')}chief-0/a/00000000.log", b"secret")
    for method, path in _requests(world, VISION):
        if VISION in path:
            assert world.ask("carol", method, path).status_code == 403, path


def test_lists_hold_only_what_the_caller_may_see(world: World) -> None:
    world.airflow.add(VISION, "r1", "success")
    world.airflow.add(TABULAR, "r2", "success")
    assert {p["tenant"] for p in world.ask("carol", "GET", "/pipelines").json()["pipelines"]} == {"tabular"}
    assert [r["run_id"] for r in world.ask("carol", "GET", "/runs").json()["runs"]] == ["r2"]
    assert {m["tenant"] for m in world.ask("carol", "GET", "/models").json()["models"]} == {"tabular"}
    for name in ("digits-mlp", f"{VISION}/r1", "r1", "vision/digits-mlp"):
        assert world.ask("carol", "GET", "/resolve", params={"run": name}).status_code == 404, name


@pytest.mark.parametrize("dag_id", ["~", "nothing", "train_vision_nothing", "train_nobody_digits-mlp"])
def test_a_dag_that_airflow_does_not_know_opens_nothing(world: World, dag_id: str) -> None:
    """Airflow's own check lets everyone pass for such an id."""
    assert world.ask("carol", "GET", f"/runs/{dag_id}/r1").status_code == 404
    assert world.ask("carol", "GET", f"/models/{dag_id}").status_code == 404


def test_a_dag_outside_its_tenants_bundle_opens_nothing(world: World) -> None:
    """A bundle of no team, or another team's, that holds a DAG of this id would make Airflow say yes to the wrong people."""
    world.store(models=True).put_json(keys.champion("digits-mlp"), {"version": 1})
    del world.airflow.owners[VISION]
    assert world.ask("carol", "GET", f"/models/{VISION}").status_code == 404
    assert world.ask("alice", "GET", f"/models/{VISION}").status_code == 404
    world.airflow.owners[VISION] = "tabular"
    assert world.ask("carol", "GET", f"/models/{VISION}").status_code == 404
    assert VISION not in str(world.ask("carol", "GET", "/pipelines").json())


def test_each_address_asks_for_the_right_that_it_needs(world: World) -> None:
    world.airflow.add(VISION, "r1")
    wanted = {
        f"/runs/{VISION}/r1": ("GET", "RUN"),
        f"/runs/{VISION}/r1/logs": ("GET", "TASK_LOGS"),
        f"/runs/{VISION}/r1/logs/chief-0": ("GET", "TASK_LOGS"),
        f"/models/{VISION}": ("GET", "XCOM"),
        f"/models/{VISION}/1": ("GET", "XCOM"),
    }
    for path, right in wanted.items():
        world.auth.asked.clear()
        world.ask("alice", "GET", path)
        assert world.auth.asked == [("alice", *right, VISION)], path


def test_a_viewer_may_read_and_not_publish(world: World, tmp_path: Path) -> None:
    dag_id = _own_package(world)
    data = _wheel(tmp_path)
    path = f"/packages/{dag_id}?sha256={hashlib.sha256(data).hexdigest()}"
    assert world.ask("victor", "GET", f"/models/{dag_id}").status_code == 200
    assert world.ask("victor", "POST", path, content=data).status_code == 403
    assert world.store().get_json(keys.code_newest("digits_model")) is None
    assert world.ask("alice", "POST", path, content=data).status_code == 200


def test_publishing_needs_the_right_to_change_every_pipeline_of_the_package(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may change one pipeline must not change another by way of the code they share."""
    dag_id = _own_package(world, "digits-mlp", "mnist-cnn")
    data = _wheel(tmp_path)
    allowed = world.auth.is_authorized_dag

    def only_one(**question: object) -> bool:
        about = question["details"].id  # type: ignore[attr-defined]
        return allowed(**question) and not (question["method"] == "PUT" and about == "train_vision_mnist-cnn")  # type: ignore[arg-type]

    monkeypatch.setattr(world.auth, "is_authorized_dag", only_one)
    answer = world.ask("alice", "POST", f"/packages/{dag_id}?sha256={hashlib.sha256(data).hexdigest()}", content=data)
    assert answer.status_code == 403
    assert "mnist-cnn" in answer.json()["detail"]


def _own_package(world: World, *pipelines: str) -> str:
    """Makes pipelines of vision train the package ``digits_model``."""
    for name in pipelines or ("digits-mlp",):
        file = world.config / "pipelines" / f"{name}.yaml"
        lines = file.read_text().splitlines()
        kept = [line for line in lines if not line.startswith(("  build:", "  config:"))]
        at = kept.index("model:")
        kept[at + 1 : at + 1] = ["  build: digits_model.model:build", "  package: digits_model"]
        file.write_text("\n".join(kept) + "\n")
    return VISION


def _wheel(tmp_path: Path) -> bytes:
    folder = tmp_path / "digits_model"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "model.py").write_text("def build(config):\n    return None\n")
    return wheel.build(folder).data
