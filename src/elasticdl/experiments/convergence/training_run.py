"""One job of the convergence experiment: real processes, whose workers join, leave and are killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elasticdl import api
from elasticdl.errors import PermanentError, SpecError
from elasticdl.experiments.convergence.judgment import ConvergenceRun
from elasticdl.jobs import history, home, timeline
from elasticdl.jobs.job import Job
from elasticdl.jobs.job_status import JobStatus
from elasticdl.spec import Phase

POLL_S = 0.3
MEMBER_STATE = "member"

ReportProgress = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A planned run. If min and max differ, the workers change from one to the other and back, and one is killed."""

    group: str
    min_workers: int
    max_workers: int
    seed: int

    @property
    def is_elastic(self) -> bool:
        return self.min_workers != self.max_workers

    @property
    def name(self) -> str:
        return f"{self.group.replace(' ', '-')}-seed-{self.seed}"


@dataclass(slots=True)
class WorkerChanges:
    """Decides when to change the number of workers, and when to kill one. Waits until the desired workers have joined.

    Changes are due after updates, not after times, so that they also happen on a slow machine.
    """

    min_workers: int
    max_workers: int
    updates_between: int  # updates between two changes
    target: int = 0
    changed_at: int = 0
    is_killed: bool = False
    applied: list[tuple[int, str]] = field(default_factory=list)

    def decide(self, step: int, members: int) -> int | str | None:
        """Returns the new number of workers, "kill", or None for no change."""
        self.target = self.target or self.min_workers
        if members != self.target:
            self.changed_at = step  # updates are counted from when all workers have joined
            return None
        if (
            not self.is_killed
            and self.target == self.max_workers
            and step >= self.changed_at + self.updates_between // 2
        ):
            self.is_killed = True
            self.applied.append((step, "kill -9 of a worker"))
            return "kill"
        if step < self.changed_at + self.updates_between:
            return None
        self.target = self.max_workers if self.target == self.min_workers else self.min_workers
        self.changed_at = step
        self.applied.append((step, f"scaled to {self.target} workers"))
        return self.target


def run_job(
    plan: RunPlan, config: Path, home_directory: Path, changes: int, progress: ReportProgress
) -> ConvergenceRun:
    """Trains a job to its end. However it ends, none of its processes is left."""
    began = time.monotonic()
    with home.use_home(home_directory):
        job = api.submit(
            config,
            job_name=plan.name,
            seed=plan.seed,
            min_workers=plan.min_workers,
            num_workers=plan.min_workers,
            max_workers=plan.max_workers,
            output=home_directory / "models" / plan.name,
        )
        with job:
            applied = _change_workers_until_over(plan, job, changes, progress)
            status = job.wait().raise_for_failure()
        events = history.read_events(home.job_directory(plan.name))
    return summarize_run(plan, events, {"step": status.step}, time.monotonic() - began, applied)


def _change_workers_until_over(
    plan: RunPlan, job: Job, changes: int, progress: ReportProgress
) -> list[tuple[int, str]]:
    deciding: WorkerChanges | None = None
    while not (status := job.status).is_over:
        if status.total_steps:
            progress(status.step / status.total_steps, f"{plan.name}: {_count_members(status)} workers")
            updates_between = max(2, status.total_steps // changes)
            deciding = deciding or WorkerChanges(plan.min_workers, plan.max_workers, updates_between)
            if plan.is_elastic and status.phase is Phase.RUNNING:
                _apply_change(deciding, status, job)
        time.sleep(POLL_S)
    return deciding.applied if deciding else []


def _apply_change(deciding: WorkerChanges, status: JobStatus, job: Job) -> None:
    match deciding.decide(status.step, _count_members(status)):
        case int(workers):
            with suppress(SpecError):  # it has just ended
                job.scale(workers=workers)
        case "kill":
            pids = [worker.pid for worker in status.workers if worker.state == MEMBER_STATE and worker.pid]
            try:
                os.kill(pids[-1], signal.SIGKILL)
            except ProcessLookupError:
                deciding.is_killed = False  # it has just left: choose another one
                deciding.applied.pop()


def _count_members(status: JobStatus) -> int:
    return sum(worker.state == MEMBER_STATE for worker in status.workers)


def summarize_run(
    plan: RunPlan,
    events: Sequence[Mapping[str, Any]],
    result: Mapping[str, Any],
    seconds: float,
    changes: Sequence[tuple[int, str]],
) -> ConvergenceRun:
    """Summarizes a successful job from its events. Raises PermanentError if it was never evaluated."""
    points = tuple(
        (evaluation.step, evaluation.metrics["auc"])
        for evaluation in history.read_evaluations(events)
        if "auc" in evaluation.metrics
    )
    if not points:
        raise PermanentError(f"job {plan.name} was never evaluated; its log has no AUC")
    kinds = [event.get("kind") for event in events]
    return ConvergenceRun(
        group=plan.group,
        is_elastic=plan.is_elastic,
        seed=plan.seed,
        points=points,
        seconds=seconds,
        updates=int(result.get("step") or points[-1][0]),
        max_workers=_max_concurrent_workers(events),
        joined=kinds.count(timeline.JOINED),
        left=kinds.count(timeline.LEFT),
        lost=kinds.count(timeline.LOST),
        changes=tuple(changes),
    )


def _max_concurrent_workers(events: Sequence[Mapping[str, Any]]) -> int:
    """Returns the largest number of workers that had joined at the same time."""
    moments: list[tuple[float, int]] = []
    for life in timeline.worker_lifetimes(events):
        if life.joined_at is not None:
            moments.append((life.joined_at, 1))
            if life.ended_at is not None:
                moments.append((life.ended_at, -1))
    here = maximum = 0
    for _, change in sorted(moments):
        here += change
        maximum = max(maximum, here)
    return maximum
