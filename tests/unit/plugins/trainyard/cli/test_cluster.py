"""``trainyard cluster``: what the program is asked, and what is made of its answers. A program of the test's stands in its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from trainyard.cli import places

if TYPE_CHECKING:
    from conftest import Trainyard

CHECKOUT = Path(__file__).resolve().parents[5]

PROGRAM = """
import json, pathlib, sys
here = pathlib.Path(__file__).parent
with open(here / "asked.jsonl", "a") as file:
    file.write(json.dumps(sys.argv[1:]) + chr(10))
answer = json.loads((here / "answers.json").read_text())[sys.argv[1]]
for event in answer["says"]:
    print(json.dumps(event), flush=True)
sys.exit(answer["code"])
"""


def node(index: int, ready: bool, power: bool, cable: bool, pods: int, **offers: str | None) -> dict[str, Any]:
    """A node as the program's status tells it."""
    name, address = f"kube-node{index}", f"172.31.254.{10 + index}"
    state = {"name": name, "address": address, "ready": ready, "power": power, "cable": cable, "pods": pods}
    return state | {"cpu": None, "memory": None} | offers


NODES = [
    node(1, True, True, True, 4, cpu="2", memory="8286208Ki"),
    node(2, False, True, False, 1, cpu="2", memory="8092Mi"),
    node(3, False, False, False, 0),
]
STATUS = {
    "phase": "up",
    "state_dir": "/var/lib/trainyard/threenode",
    "well": False,
    "kubeconfig": "/var/lib/trainyard/threenode/kubeconfig",
    "registry": "localhost:5000",
    "nodes": NODES,
    "parts": [{"machine": "kube-master", "name": "etcd", "state": "running", "restarts": 0, "well": True}],
}


class Program:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        for one in (folder, folder.parent):
            (one / "__init__.py").touch()
        (folder / "__main__.py").write_text(PROGRAM)
        self.answers: dict[str, Any] = {}
        self.answer("status", STATUS, code=1)

    def answer(self, command: str, *says: dict[str, Any], code: int = 0) -> None:
        self.answers[command] = {"says": says, "code": code}
        (self.folder / "answers.json").write_text(json.dumps(self.answers))

    def asked(self) -> list[list[str]]:
        file = self.folder / "asked.jsonl"
        found = [json.loads(line) for line in file.read_text().splitlines()]
        file.unlink()
        return found


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    made = Program(tmp_path / "checkout" / "local" / "threenode")
    monkeypatch.setattr(places, "checkout", lambda: tmp_path / "checkout")
    return made


def test_up_passes_its_options_on_and_says_what_to_do_next(program: Program, trainyard: Trainyard) -> None:
    events = [{"event": "phase", "name": "network", "state": "done", "seconds": 0.2}, {"event": "up", "phase": "up"}]
    program.answer("up", *events)
    options = ["--cpus", "1.5", "--memory", "4.0", "--subnet", "172.31.9.0/24", "--bridge", "ty1", "--port", "registry=5001"]
    done = trainyard("cluster", "up", "--nodes", "3", *options, "--state", "/there")
    assert done.code == 0, done.err
    up, status = program.asked()
    assert up == ["up", "--json", "--state", "/there", "--nodes", "3", *options]
    assert status == ["status", "--json", "--state", "/there"]
    assert "✓ network  0.2 s" in done.out
    assert "export KUBECONFIG=/var/lib/trainyard/threenode/kubeconfig" in done.out
    assert "docker push localhost:5000/NAME" in done.out
    done = trainyard("cluster", "up", "--json")
    assert done.lines == events
    assert program.asked() == [["up", "--json", "--nodes", "2"]]


def test_options_of_the_command_are_options_of_the_program() -> None:
    """Two lists that must agree: the command may not import the program."""
    import typer.main

    from local.threenode.__main__ import parser
    from trainyard.cli.commands.cluster import cluster

    group = typer.main.get_group(cluster)
    programs = next(action for action in parser()._actions if action.dest == "command").choices
    assert isinstance(programs, dict)
    assert set(group.commands) == set(programs) - {"serve"}  # type: ignore[attr-defined]
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        own = {word for option in command.params for word in option.opts if word.startswith("--")}
        assert own == set(programs[name]._option_string_actions) - {"-h", "--help"}, name


def test_a_start_that_fails_is_one_line_and_exit_code_1(program: Program, trainyard: Trainyard) -> None:
    program.answer("up", {"event": "error", "message": "not installed: ipset"}, code=1)
    done = trainyard("cluster", "up")
    assert (done.code, done.err) == (1, "trainyard: not installed: ipset\n")
    assert len(program.asked()) == 1


def test_status_as_a_table(program: Program, trainyard: Trainyard) -> None:
    done = trainyard("cluster", "status")
    assert done.code == 1
    rows = [line.split() for line in done.out.splitlines()]
    assert ["kube-node1", "172.31.254.11", "Ready", "plugged", "in", "4", "2", "7.9", "GiB"] in rows
    assert ["kube-node2", "172.31.254.12", "not", "Ready", "cut", "1", "2", "8092Mi"] in rows
    assert ["kube-node3", "172.31.254.13", "off", "-", "0", "-", "-"] in rows
    assert ["kube-master", "etcd", "running", "0"] in rows


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({**STATUS, "well": True}, 0),
        (STATUS, 1),
        ({"phase": "down", "state_dir": "/there", "nodes": [], "parts": []}, 3),
    ],
)
def test_status_as_json_and_exit_code(program: Program, trainyard: Trainyard, document: dict[str, Any], code: int) -> None:
    program.answer("status", document, code=code)
    done = trainyard("cluster", "status", "--json")
    assert (done.code, done.lines) == (code, [document])


def test_who_may_not_ask_is_told_the_way_out(program: Program, trainyard: Trainyard) -> None:
    program.answer("status", {"event": "error", "message": "this needs root"}, code=1)
    done = trainyard("cluster", "status")
    assert (done.code, done.err) == (4, "trainyard: this needs root\n")


@pytest.mark.parametrize("command", ["node-down", "node-up", "cut", "mend"])
def test_faults_name_their_node(program: Program, trainyard: Trainyard, command: str) -> None:
    program.answer(command)
    assert trainyard("cluster", command, "kube-node2").code == 0
    assert program.asked() == [[command, "--json", "kube-node2"]]
    assert trainyard("cluster", command).code == 2


def test_down_keeps_images_unless_told(program: Program, trainyard: Trainyard) -> None:
    program.answer("down")
    assert trainyard("cluster", "down").code == 0
    assert trainyard("cluster", "down", "--all").code == 0
    assert program.asked() == [["down", "--json"], ["down", "--json", "--all"]]


def test_the_guide_names_every_command(trainyard: Trainyard) -> None:
    import typer.main

    from trainyard.cli.commands.cluster import cluster

    for name in typer.main.get_group(cluster).commands:  # type: ignore[attr-defined]
        assert trainyard("cluster", name, "--help").code == 0
        for guide in ("command-line.md", "cluster.md"):
            assert f"cluster {name}" in (CHECKOUT / "docs" / "guides" / guide).read_text(), (name, guide)
