from __future__ import annotations

import json

import pytest

from trainer import environment
from trainer.errors import UserError

ADDRESSES = {"chief": ["h:1"], "ps": ["h:2", "h:3"], "worker": ["h:4"]}


def _gang(role: str, index: str | None = None, **document: object) -> environment.Gang | None:
    environ = {"TRAINYARD_ROLE": role, "TRAINYARD_GANG": json.dumps({"generation": 2, "addresses": ADDRESSES, **document})}
    return environment.gang(environ | ({"JOB_COMPLETION_INDEX": index} if index is not None else {}))


def test_a_replica_knows_its_place() -> None:
    gang = _gang("ps", "1")
    assert gang is not None
    assert (gang.generation, gang.replica, gang.own_address, gang.chief_address) == (2, "ps-1", "h:3", "h:1")
    assert gang.peers() == [("chief-0", "h:1"), ("ps-0", "h:2"), ("worker-0", "h:4")]


def test_the_chiefs_job_has_no_index() -> None:
    gang = _gang("chief")
    assert gang is not None
    assert gang.replica == "chief-0"


def test_a_steps_pod_is_in_no_gang() -> None:
    assert environment.gang({}) is None
    assert environment.replica_name({"TRAINYARD_REPLICA": "shard-3"}) == "shard-3"


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"TRAINYARD_ROLE": "boss"}, "'boss': expected one of chief, ps, worker"),
        ({"TRAINYARD_ROLE": "ps"}, "TRAINYARD_GANG cannot be read"),
        ({"TRAINYARD_ROLE": "ps", "TRAINYARD_GANG": "{"}, "TRAINYARD_GANG cannot be read"),
        ({"TRAINYARD_ROLE": "ps", "TRAINYARD_GANG": '{"generation": 1, "addresses": []}'}, "TRAINYARD_GANG cannot be read"),
    ],
)
def test_nonsense_is_refused(environ: dict[str, str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        environment.gang(environ)


def test_an_index_without_an_address_is_refused() -> None:
    with pytest.raises(UserError, match="no address for ps-2"):
        _gang("ps", "2")


@pytest.mark.parametrize(("millis", "cores", "threads"), [("750", 0.75, 1), ("2500", 2.5, 2), ("100", 0.1, 1)])
def test_threads_fit_the_pods_limit(millis: str, cores: float, threads: int) -> None:
    environ = {"TRAINYARD_CPU_MILLIS": millis}
    assert (environment.cpu_cores(environ), environment.threads(environ)) == (cores, threads)


def test_a_missing_run_spec_is_said() -> None:
    with pytest.raises(UserError, match="TRAINYARD_RUN_SPEC is not set"):
        environment.run_spec_text({})
