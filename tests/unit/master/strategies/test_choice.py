"""The strategy of a job is chosen once; only that depends on the kind of job."""

from __future__ import annotations

from pathlib import Path

import pytest

import elasticdl.master
from elasticdl.master.machine import events as ev
from elasticdl.master.machine.state_machine import choose_strategy
from elasticdl.master.strategies.allreduce import AllReduceTraining
from elasticdl.master.strategies.base import JobStrategy
from elasticdl.master.strategies.lease_training import LeaseTraining
from elasticdl.master.strategies.lease_work import LeaseWork
from elasticdl.master.strategies.scripts import ScriptTraining
from elasticdl.spec import JobKind, JobSpec, PsMode, PsSpec, ScriptSpec, Strategy, WorkerId
from tests.unit.master.driver import Driver, job_spec

PS = job_spec(ps=2).model_copy(update={"strategy": Strategy.PS})
SCRIPT = job_spec().model_copy(update={"kind": JobKind.SCRIPT, "model": None})


@pytest.mark.parametrize(
    ("spec", "strategy"),
    [
        (job_spec(), AllReduceTraining),
        (PS, AllReduceTraining),
        (PS.model_copy(update={"ps": PsSpec(replicas=2, mode=PsMode.SYNC)}), LeaseTraining),
        (PS.model_copy(update={"ps": PsSpec(replicas=2, mode=PsMode.ASYNC)}), LeaseTraining),
        (job_spec(kind=JobKind.EVALUATION), LeaseWork),
        (job_spec(kind=JobKind.PREDICTION), LeaseWork),
        (SCRIPT.model_copy(update={"script": ScriptSpec(path="train.py")}), AllReduceTraining),
        (SCRIPT.model_copy(update={"script": ScriptSpec(path="train.py", compat="ddp")}), ScriptTraining),
    ],
)
def test_the_kind_of_a_job_decides_its_strategy(spec: JobSpec, strategy: type[JobStrategy]) -> None:
    assert type(choose_strategy(spec)) is strategy


def test_only_choose_strategy_depends_on_the_kind_of_job() -> None:
    sources = Path(str(elasticdl.master.__file__)).parent.rglob("*.py")
    questions = ("trains_by_leases", "restarts_script", "has_rounds")

    asking = {path.name for path in sources if any(question in path.read_text() for question in questions)}

    assert asking == {"state_machine.py"}


def test_an_event_without_a_handler_in_a_strategy_changes_nothing() -> None:
    driver = Driver(job_spec(kind=JobKind.EVALUATION))
    driver.join("worker-0")
    before = driver.machine.state.ledger.rounds

    driver.do(ev.RoundEntered(WorkerId("worker-0"), driver.sequence("worker-0"), 1, 5, 0.0))

    assert driver.machine.state.ledger.rounds == before and driver.machine.state.ledger.step == 0
