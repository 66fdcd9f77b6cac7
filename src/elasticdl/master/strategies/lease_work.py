"""Lease work: an evaluation or prediction job, whose workers take shards of one pass over the data. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from elasticdl.master.machine import decisions, stalls
from elasticdl.master.machine.ending import end_job
from elasticdl.master.machine.events import DataPlanReported, Event, JobEnded, WorkerFinished
from elasticdl.master.machine.membership import Worker, WorkerState
from elasticdl.master.machine.silence import find_silent_worker
from elasticdl.master.machine.state import MasterState
from elasticdl.master.machine.training_reports import record_worker_finished
from elasticdl.master.ps_fleet import fleet_decisions
from elasticdl.master.strategies.base import Actions, JobStrategy
from elasticdl.master.strategies.evaluation import OpenEvaluation
from elasticdl.master.strategies.shards import ShardQueue
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import JobKind, Phase


def _decide_end(job: MasterState, now: float) -> Event | None:
    return JobEnded(Phase.SUCCEEDED, "all shards are done", False) if job.ledger.evaluations.results else None


class LeaseWork(JobStrategy):
    """The job is one evaluation, of which any worker may take any shard."""

    decisions = (
        decisions.decide_worker_return,
        find_silent_worker,
        stalls.decide_lease_stall,
        decisions.decide_lease_expiry,
        _decide_end,
        fleet_decisions.next_decision,
        decisions.decide_launch,
        decisions.decide_overdue_leave,
        decisions.decide_progress_record,
    )

    def on_plan_reported(self, job: MasterState, event: DataPlanReported, now: float) -> Actions:
        """Open the evaluation, now that a worker has counted the records."""
        evaluations = job.ledger.evaluations
        if evaluations.open or evaluations.results:
            return []
        source = "validation" if job.spec.kind is JobKind.EVALUATION else "prediction"
        if event.total_records <= 0:
            uri = getattr(job.spec.data, source)
            return end_job(job, Phase.FAILED, f"data.{source}: expected at least one record, {uri!r} has none", 2, now)
        queue = ShardQueue(source, event.total_records, job.spec.data.shard_records)
        step = event.total_steps  # of the evaluated weights: such a job trains no steps
        evaluations.open[step] = OpenEvaluation(step, queue, holders=None)
        return []

    def on_worker_finished(self, job: MasterState, event: WorkerFinished, now: float) -> Actions:
        return record_worker_finished(job, event, now)

    def on_worker_ready(self, job: MasterState, worker: Worker, now: float) -> None:
        worker.set_state(WorkerState.MEMBER, now)
        job.record_useful_work()

    def on_worker_joined(self, job: MasterState, worker: Worker, now: float) -> Actions:
        return decisions.log_lease_taker(job, worker, now)

    def is_drained(self, job: MasterState) -> bool:
        return bool(job.ledger.evaluations.results)

    def on_evaluation_finished(
        self, job: MasterState, evaluation: OpenEvaluation, metrics: Mapping[str, float], now: float
    ) -> Actions:
        job.ledger.records = evaluation.queue.records
        return []

    def on_lease_overdue(self, job: MasterState, worker: Worker, reason: str, now: float) -> Actions:
        return stalls.replace_hung_worker(job, worker, reason, now)

    def pending_result(self, worker: Worker, step: int, metrics: Mapping[str, float]) -> Actions:
        return []

    def known_progress(self, job: MasterState) -> int:
        return sum(evaluation.queue.done_records for evaluation in job.ledger.evaluations.open.values())

    def done_records(self, job: MasterState) -> int:
        return self.known_progress(job) or job.ledger.records

    def epochs(self, job: MasterState) -> int:
        return 1

    def complete_status(self, job: MasterState, status: pb.JobStatus) -> None:
        super().complete_status(job, status)
        ledger = job.ledger
        if job.spec.kind is JobKind.PREDICTION:  # the count of bad rows so far
            for evaluation in ledger.evaluations.open.values():
                status.metrics.update(evaluation.metrics())
        if ledger.evaluations.results and ledger.plan is not None:
            status.shards = status.shards_done = -(-ledger.plan.total_records // job.spec.data.shard_records)

    def expects_steps(self) -> bool:
        return False

    def output(self, job: MasterState) -> str:
        return job.ledger.output or job.spec.output

    def describe_stop(self, *, at_once: bool) -> str:
        return "stopping"
