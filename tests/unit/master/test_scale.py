"""Requests to scale a job, and their replies."""

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
    """A loop that handles events at once."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.machine = driver.machine

    async def submit_and_wait(self, event: ev.Event) -> None:
        self.driver.do(event)


def scale(driver: Driver, workers: int = 0, ps: int = 0) -> str:
    service = MasterServicer(cast(Any, ImmediateLoop(driver)))
    return asyncio.run(service.scale(pb.ScaleRequest(workers=workers, ps=ps))).message


@pytest.mark.parametrize(
    ("workers", "ps", "message"),
    [
        (3, 0, "scaling from 2 to 3 workers"),
        (0, 4, "scaling from 2 to 4 ps"),
        (1, 3, "scaling from 2 to 1 workers and from 2 to 3 ps"),
    ],
)
def test_workers_ps_or_both_can_be_scaled(workers: int, ps: int, message: str) -> None:
    driver = Driver(job_spec(ps=2))

    assert scale(driver, workers, ps) == message
    assert (driver.machine.state.ledger.desired_workers, driver.machine.state.ledger.fleet.desired) == (
        workers or 2,
        ps or 2,
    )


@pytest.mark.parametrize(
    ("spec", "replicas", "expected"),
    [
        ({}, {"ps": 3}, "ps: expected none, since this job runs with AllreduceStrategy, received 3"),
        (
            {"ps": 2, "backups": 1},
            {"ps": 1},
            "ps: expected 2 or more, since every slot has a backup on another ps, received 1",
        ),
        ({"ps": 2}, {"workers": 9, "ps": 3}, "workers: expected 1 to 4"),
        ({"ps": 2}, {}, "expected a number of workers or ps"),
    ],
)
def test_an_impossible_request_is_an_error_and_changes_nothing(
    spec: dict[str, Any], replicas: dict[str, int], expected: str
) -> None:
    driver = Driver(job_spec(**spec))
    ledger_before = driver.machine.dump_ledger()

    with pytest.raises(SpecError, match=expected):
        scale(driver, **replicas)

    assert driver.machine.dump_ledger() == ledger_before


def test_a_job_that_is_over_cannot_be_scaled() -> None:
    driver = Driver(job_spec(ps=1))
    driver.do(ev.StopRequested(at_once=False, reason="enough"))

    with pytest.raises(SpecError, match="the job is stopped: it can no longer be scaled"):
        scale(driver, ps=2)
