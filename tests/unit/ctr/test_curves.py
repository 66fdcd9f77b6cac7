"""How a training went, over its steps."""

from __future__ import annotations

from typing import Any

from elasticdl.ctr.report.curves import TrainingCurves, collect_curves, workers_by_step


def event(kind: str, step: int = 0, worker: str = "") -> dict[str, Any]:
    return {"kind": kind, "replica": worker, "step": step}


def test_workers_are_counted_from_the_step_at_which_they_came_and_went() -> None:
    events = [
        event("started"),
        event("worker-launched", 0, "a"), event("worker-joined", 1, "a"), event("worker-joined", 1, "b"),
        event("worker-joined", 20, "c"), event("worker-lost", 30, "a"), event("checkpoint", 35, "b"),
        event("worker-left", 50, "b"), event("worker-left", 50, "c"),
    ]  # fmt: skip

    assert workers_by_step(events) == ((1, 2), (20, 3), (30, 2))


def test_a_job_that_goes_on_from_a_checkpoint_begins_with_nobody_and_computes_later_steps_again() -> None:
    events = [
        event("started"), event("worker-joined", 1, "a"), event("worker-joined", 1, "b"),
        event("worker-joined", 40, "c"), event("started"), event("worker-joined", 31, "a"),
    ]  # fmt: skip

    assert workers_by_step(events) == ((1, 2), (31, 1))


def test_a_worker_that_never_joined_is_not_counted_when_it_is_lost() -> None:
    assert workers_by_step([event("worker-joined", 1, "a"), event("worker-lost", 5, "b")]) == ((1, 1),)


def test_curves_are_by_step_and_of_a_step_computed_twice_the_later_counts() -> None:
    curves = {
        "loss": [(2, 11.0, 0.5), (1, 10.0, 0.7), (2, 30.0, 0.4)],
        "validation/auc": [(2, 12.0, 0.8)],
        "records_per_s": [(1, 10.0, 100.0)],
    }

    collected = collect_curves(curves, [])

    assert collected == TrainingCurves(loss=((1, 0.7), (2, 0.4)), evaluations={"auc": ((2, 0.8),)}, workers=())
    assert collected.last_step == 2 and TrainingCurves().last_step == 0
