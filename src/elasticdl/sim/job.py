"""A simulated job: its workload, its allocation, and what changes of it cost."""

from __future__ import annotations

from elasticdl.scheduler.interface import BatchConfig
from elasticdl.scheduler.snapshot import JobInfo, WorkersByNode
from elasticdl.sim.interface import AllocationSpan, ChangeCost, JobRecord, WorkersPerNode
from elasticdl.sim.traces.trace import TraceJob

TIME_TOLERANCE_S = 1e-6  # events closer than this are simultaneous: sums of seconds over a week are not more exact


class SimulatedJob:
    """Advances when `advance` is called; its rate is constant between two changes."""

    def __init__(self, trace_job: TraceJob, cost: ChangeCost, contention: float, records_spans: bool = True) -> None:
        self.trace_job = trace_job
        self.workload = trace_job.workload
        self.record = JobRecord(
            trace_job.name, trace_job.workload.name, trace_job.submitted_at, trace_job.requested, trace_job.priority
        )
        self.workers: WorkersByNode = {}
        self.share = 1.0
        self.version = 0  # of its next event
        self.contention = contention  # integral of the number of jobs when it was submitted
        self.slowness = 1.0  # of its slowest node, or by interference
        self._cost = cost
        self._records_spans = records_spans
        self._now = trace_job.submitted_at
        self._pause_s = 0.0
        self._join_s = 0.0
        self._pending_placement: tuple[WorkersPerNode, str, BatchConfig | None] | None = None
        self._executed_s = 0.0
        self._changed_at: float | None = None
        self._span_started_at = 0.0
        self._max_workers = 0

    def resume_from(self, job: JobInfo, kind: str, now: float) -> None:
        """Continues a job that exists already, with all that `job` says."""
        self._now = self._span_started_at = now
        self.workers, self.share = dict(job.workers), job.share
        self.record.started_at, self.record.attained_s, self.record.restarts = (
            job.started_at,
            job.attained_s,
            job.restarts,
        )
        self._executed_s, self._changed_at, self._max_workers = job.executed_s, job.changed_at, job.max_workers_so_far
        if job.workers:
            self.workload.place(tuple(job.workers[name] for name in sorted(job.workers)), kind, None)

    def next_event_at(self) -> float:
        """Returns when its rate changes by itself, or it ends; inf: it waits."""
        if not self.workers or self.workload.is_done:
            return self._now if self.workload.is_done else float("inf")
        rate = self.workload.rate() * self.share / self.slowness
        due_at = self._now + self._pause_s + (self.workload.work_to_next_change() / rate if rate > 0 else float("inf"))
        return due_at if self._pending_placement is None else min(due_at, self._now + self._join_s)

    def advance(self, now: float) -> bool:
        """Advances up to `now`, at most to `next_event_at`. Returns whether its rate changes."""
        seconds, self._now = max(now - self._now, 0.0), max(now, self._now)
        if not self.workers:
            self.record.waited_s += seconds
            return False
        self.record.attained_s += seconds * sum(self.workers.values()) * self.trace_job.devices
        self._executed_s += seconds
        paused = min(self._pause_s, seconds)
        self._pause_s -= paused
        changed = self._do_work(seconds - paused) if self._pause_s < TIME_TOLERANCE_S else False
        return self._admit_joining(seconds) or changed

    def _admit_joining(self, seconds: float) -> bool:
        """Returns whether new workers take part from now on."""
        self._join_s -= seconds
        if self._pending_placement is None or self._join_s > TIME_TOLERANCE_S or self.workload.is_done:
            return False
        self.workload.place(*self._pending_placement)
        self._pending_placement, self._pause_s = None, max(self._pause_s, self._cost.change_s)
        return True

    def _do_work(self, seconds: float) -> bool:
        if self.workload.is_done:
            return False
        rate, work_to_change = self.workload.rate() * self.share / self.slowness, self.workload.work_to_next_change()
        work = seconds * rate
        if work_to_change - work <= TIME_TOLERANCE_S * rate:
            work = work_to_change
        return self.workload.advance(work) if work > 0 else False

    def allocate(self, workers: WorkersByNode, kind: str, share: float, batch: BatchConfig | None, now: float) -> None:
        """Changes the workers at `now`, to which the job has been advanced."""
        before, self.workers, self.share = self.workers, dict(workers), share
        self._close_span(before, now)
        placement = tuple(workers[name] for name in sorted(workers))
        self._pending_placement, self._changed_at = None, now
        if not workers:
            self.workload.place((), "", None)
            return
        self._max_workers = max(self._max_workers, sum(placement))
        if self.record.started_at is None:
            self.record.started_at = now
        elif before or self._executed_s:
            self.record.restarts += 1
        unchanged = {name: min(count, before.get(name, 0)) for name, count in workers.items() if name in before}
        # Another change does not shorten the pause of the last one.
        pause_s = self._pause_s if before else 0.0
        if not unchanged:
            self.workload.place(placement, kind, batch)
            cost_s = max(self._cost.join_s, self._cost.change_s) if before else self._cost.start_s
            self._pause_s = max(pause_s, cost_s)
        elif self._cost.join_s and sum(unchanged.values()) < sum(placement):
            self.workload.place(tuple(unchanged[name] for name in sorted(unchanged)), kind, None)
            self._pending_placement, self._join_s = (placement, kind, batch), self._cost.join_s
        else:
            self.workload.place(placement, kind, batch)
            self._pause_s = max(pause_s, self._cost.change_s)

    def finish(self, now: float) -> None:
        self._close_span(self.workers, now)
        self.workers = {}
        self.record.finished_at = now

    def to_job_info(self) -> JobInfo:
        """Returns the job as a scheduler sees it."""
        trace_job, report, record = self.trace_job, self.workload.report(), self.record
        return JobInfo(
            trace_job.name,
            trace_job.submitted_at,
            trace_job.min_workers,
            trace_job.max_workers,
            trace_job.requested,
            trace_job.sizes,
            trace_job.priority,
            trace_job.queue,
            devices=trace_job.devices,
            request=trace_job.request,
            kinds=trace_job.kinds,
            constraints=trace_job.constraints,
            is_guaranteed=trace_job.is_guaranteed,
            may_share=trace_job.may_share,
            device_use=trace_job.device_use,
            workers=self.workers,
            share=self.share,
            started_at=record.started_at,
            attained_s=record.attained_s,
            executed_s=self._executed_s,
            changed_at=self._changed_at,
            restarts=record.restarts,
            change_cost_s=self._cost.change_s if record.started_at is not None else self._cost.start_s,
            max_workers_so_far=self._max_workers,
            speeds=report.speeds,
            noise=report.noise,
            rates=report.rates,
            work_left=report.work_left,
            work_done=report.work_done,
            weight=trace_job.weight,
        )

    def _close_span(self, before: WorkersByNode, now: float) -> None:
        if before and self._records_spans:
            self.record.spans.append(
                AllocationSpan(self.trace_job.name, self._span_started_at, now, sum(before.values()), len(before))
            )
        self._span_started_at = now
