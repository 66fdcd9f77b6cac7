"""Changes of the batch size of a running job."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from elasticdl.errors import SpecError
from elasticdl.master.machine import events as ev
from elasticdl.master.machine.actions import Action
from elasticdl.master.runtime import codec
from elasticdl.master.runtime.service import MasterServicer
from elasticdl.master.views.status import job_status
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import JobSpec, LrScaling, PlanSpec, WorkerId
from tests.unit.master.driver import Driver, job_spec, log_kinds, sent_messages
from tests.unit.master.test_scale import ImmediateLoop


def spec(rule: LrScaling = LrScaling.ADASCALE, **plan: Any) -> JobSpec:
    plain = job_spec(workers=2)
    changed = PlanSpec(logical_ranks=4, global_batch_size=64, lr_scaling=rule, **plan)
    return JobSpec.model_validate({**plain.model_dump(), "plan": changed.model_dump()})


def training(**plan: Any) -> Driver:
    driver = Driver(spec(**plan))
    driver.join("worker-0", "worker-1")
    driver.enter()
    return driver


def sent_changes(actions: list[Action], worker: str) -> list[tuple[int, int, int]]:
    (message,) = sent_messages(actions, worker, "batches")[-1:]
    return [(change.id, change.step, change.scale) for change in message.batches.changes]


def took_effect(driver: Driver, worker: str, change: int, step: int, scale: int) -> list[Action]:
    return driver.do(ev.BatchScaled(WorkerId(worker), driver.sequence(worker), change, step, scale))


def scale(driver: Driver, batch_scale: int) -> str:
    service = MasterServicer(cast(Any, ImmediateLoop(driver)))
    return asyncio.run(service.scale(pb.ScaleRequest(batch_scale=batch_scale))).message


def test_all_workers_are_sent_a_change_and_its_first_step_is_recorded() -> None:
    driver = training()
    requested = driver.do(ev.ScaleRequested(0, batch_scale=4))
    done = took_effect(driver, "worker-1", 1, 37, 4)
    echo = took_effect(driver, "worker-0", 1, 37, 4)

    assert sent_changes(requested, "worker-0") == sent_changes(requested, "worker-1") == [(1, -1, 4)]
    assert sent_changes(done, "worker-0") == [(1, 37, 4)]
    assert log_kinds(done) == ["batch-scaled"]
    assert log_kinds(echo) == []
    assert [(c.step, c.scale) for c in job_status(driver.machine.state, driver.now).batch_scales] == [(37, 4)]


def test_a_worker_that_connects_later_is_sent_all_changes() -> None:
    driver = training()
    driver.do(ev.ScaleRequested(3, batch_scale=4))
    took_effect(driver, "worker-0", 1, 37, 4)
    driver.do(ev.ScaleRequested(0, batch_scale=2))

    assert sent_changes(driver.connect("worker-2"), "worker-2") == [(1, 37, 4), (2, -1, 2)]


def test_planned_changes_come_first_and_have_their_steps() -> None:
    driver = training(batch_schedule={50: 8, 0: 2})

    assert sent_changes(driver.connect("worker-0"), "worker-0") == [(1, 0, 2), (2, 50, 8)]
    assert sent_changes(driver.do(ev.ScaleRequested(0, batch_scale=4)), "worker-0")[-1] == (3, -1, 4)


def test_a_planned_change_is_logged_once_when_it_takes_effect() -> None:
    driver = training(batch_schedule={50: 8})
    done = took_effect(driver, "worker-0", 1, 51, 8)
    echo = took_effect(driver, "worker-1", 1, 51, 8)

    assert (log_kinds(done), log_kinds(echo)) == (["batch-scaled"], [])
    assert sent_messages(done, "worker-0", "batches") == []
    assert [(c.step, c.scale) for c in job_status(driver.machine.state, driver.now).batch_scales] == [(50, 8)]


def test_a_change_that_a_newer_one_replaced_never_takes_effect() -> None:
    driver = training()
    driver.do(ev.ScaleRequested(0, batch_scale=4))
    driver.do(ev.ScaleRequested(0, batch_scale=2))
    took_effect(driver, "worker-0", 2, 37, 2)

    assert [(c.step, c.scale) for c in job_status(driver.machine.state, driver.now).batch_scales] == [(37, 4), (37, 2)]
    assert log_kinds(took_effect(driver, "worker-1", 1, 40, 4)) == []


def test_a_requested_change_replaces_changes_planned_for_later() -> None:
    driver = training(batch_schedule={10: 2, 50: 8})
    driver.do(ev.ScaleRequested(0, batch_scale=4))
    done = took_effect(driver, "worker-0", 3, 37, 4)

    assert sent_changes(done, "worker-0") == [(1, 10, 2), (2, 37, 8), (3, 37, 4)]


def test_a_restarted_master_knows_all_changes() -> None:
    driver = training(batch_schedule={50: 8})
    driver.do(ev.ScaleRequested(0, batch_scale=4))
    took_effect(driver, "worker-0", 2, 37, 4)

    assert driver.replayed().dump_ledger() == driver.machine.dump_ledger()


def test_no_message_is_sent_if_the_batch_does_not_change() -> None:
    driver = Driver(job_spec(workers=2))

    assert sent_messages(driver.join("worker-0", "worker-1"), "worker-0", "batches") == []


def test_the_reply_names_the_scale_before_and_after() -> None:
    assert scale(training(), 4) == "scaling from 1 to 4 batches per update"


@pytest.mark.parametrize(
    ("plan", "workers", "expected"),
    [
        (
            {"rule": LrScaling.NONE},
            2,
            "the batch of this job stays as it is, received 2; start it with --adaptive_batch",
        ),
        ({}, 33, "batch_scale: expected 1 to 32, received 33"),
        ({"max_batch_size": 200}, 4, "batch_scale: expected 1 to 3, received 4"),
    ],
)
def test_an_impossible_scale_is_refused_and_changes_nothing(plan: dict[str, Any], workers: int, expected: str) -> None:
    driver = Driver(spec(**plan))
    before = driver.machine.dump_ledger()

    with pytest.raises(SpecError, match=expected):
        scale(driver, workers)

    assert driver.machine.dump_ledger() == before


def test_a_journal_of_an_older_master_can_be_read() -> None:
    event, _ = codec.decode_event(b'[1.0,"ScaleRequested",[3,0]]')

    assert event == ev.ScaleRequested(3, 0, 0)
