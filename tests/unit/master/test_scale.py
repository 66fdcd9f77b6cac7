"""What a person may wish for, and what the answer says."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from elasticdl.errors import SpecError
from elasticdl.master.machine import events as ev
from elasticdl.master.runtime.service import MasterServicer
from elasticdl.rpc import elasticdl_pb2 as pb
from tests.unit.master.driver import Driver, job_spec


class ImmediateLoop:
    """A loop that takes events at once."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.machine = driver.machine

    async def submit_and_wait(self, event: ev.Event) -> None:
        self.driver.do(event)


def scale(driver: Driver, workers: int = 0, ps: int = 0) -> str:
    service = MasterServicer(cast(Any, ImmediateLoop(driver)))
    return asyncio.run(service.scale(pb.ScaleRequest(workers=workers, ps=ps))).message


@pytest.mark.parametrize(
    ("workers", "ps", "told"),
    [
        (3, 0, "scaling from 2 to 3 workers"),
        (0, 4, "scaling from 2 to 4 ps"),
        (1, 3, "scaling from 2 to 1 workers and from 2 to 3 ps"),
    ],
)
def test_either_or_both_may_be_wished_for(workers: int, ps: int, told: str) -> None:
    driver = Driver(job_spec(ps=2))

    assert scale(driver, workers, ps) == told
    assert (driver.machine.state.ledger.desired_workers, driver.machine.state.ledger.fleet.desired) == (
        workers or 2,
        ps or 2,
    )


@pytest.mark.parametrize(
    ("spec", "wish", "expected"),
    [
        ({}, {"ps": 3}, "ps: expected none, since this job runs with AllreduceStrategy, received 3"),
        (
            {"ps": 2, "backups": 1},
            {"ps": 1},
            "ps: expected 2 or more, since every slot has a backup on another ps, received 1",
        ),
        ({"ps": 2}, {"workers": 9, "ps": 3}, "workers: expected 1 to 4"),
        ({"ps": 2}, {}, "expected a number of workers, of ps, or both"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    spec: dict[str, Any], wish: dict[str, int], expected: str
) -> None:
    driver = Driver(job_spec(**spec))
    before = driver.machine.dump_ledger()

    with pytest.raises(SpecError, match=expected):
        scale(driver, **wish)

    assert driver.machine.dump_ledger() == before


def test_a_job_that_is_over_cannot_be_scaled() -> None:
    driver = Driver(job_spec(ps=1))
    driver.do(ev.StopRequested(at_once=False, reason="enough"))

    with pytest.raises(SpecError, match="the job is stopped: it can no longer be scaled"):
        scale(driver, ps=2)
