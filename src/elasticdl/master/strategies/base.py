"""The interface of a strategy: all that differs by the way the workers of a job share its work. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from elasticdl.master.machine.actions import Action
from elasticdl.master.machine.events import (
    DataPlanReported,
    Event,
    HeartbeatReceived,
    LeaseReport,
    WorkerConnected,
    WorkerFinished,
)
from elasticdl.master.machine.membership import GONE_WORKER_STATES, Worker, WorkerState
from elasticdl.master.machine.state import MasterState, send_message
from elasticdl.master.strategies import leases, shards
from elasticdl.master.strategies.evaluation import OpenEvaluation
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import WorkerId

Actions = list[Action]
EventHandler = Callable[[MasterState, Any, float], Actions]
Decision = Callable[[MasterState, float], Event | None]


class JobStrategy(ABC):
    """How workers share the work of a job: all-reduce training, lease training, or leases of an evaluation alone.

    It is chosen once, when the job begins, and keeps no state: what it knows is in the MasterState that it is given.
    `handle` takes the events that mean something to it, `due` says what to decide now, the methods named after losses
    say what is lost with a worker, and the rest what people are shown.
    """

    handlers: ClassVar[Mapping[type, EventHandler]] = {}  # of the events that mean something to this strategy alone
    decisions: ClassVar[tuple[Decision, ...]]  # in the order in which they are asked
    counts_repeated_losses: ClassVar[bool] = True  # whether losses in a row without progress become failures

    # ---- handle

    def handle(self, job: MasterState, event: Event, now: float) -> Actions:
        """Handle an event that differs by strategy; one that means nothing here changes nothing."""
        handler = self.handlers.get(type(event))
        return handler(job, event, now) if handler is not None else []

    @abstractmethod
    def on_plan_reported(self, job: MasterState, event: DataPlanReported, now: float) -> Actions:
        """A worker has counted the data; the first plan is in the ledger."""

    @abstractmethod
    def on_worker_finished(self, job: MasterState, event: WorkerFinished, now: float) -> Actions:
        """A worker has done its part, or was told to stop."""

    @abstractmethod
    def on_worker_ready(self, job: MasterState, worker: Worker, now: float) -> None:
        """A worker has started: the state that it is in from now on."""

    def on_worker_joined(self, job: MasterState, worker: Worker, now: float) -> Actions:
        """A worker says that it is ready, after `on_worker_ready`."""
        return []

    def on_worker_connected(self, job: MasterState, event: WorkerConnected, now: float) -> Actions:
        """A worker that is known has connected, and says what it holds."""
        return []

    def on_worker_replaced(self, job: MasterState, worker: Worker, now: float) -> Actions:
        """Another process has connected under the name of this worker."""
        return []

    def on_goodbye(self, job: MasterState, worker: Worker, now: float) -> Actions:
        """A worker ends as it should."""
        return []

    def on_heartbeat(self, job: MasterState, event: HeartbeatReceived, now: float) -> None:
        """Observe what a heartbeat says of the progress."""
        seen = job.observed
        if event.step > seen.step:
            seen.record_progress(event.step, event.records, now)
            seen.loss, seen.learning_rate = event.loss, event.learning_rate
            seen.gradient_square, seen.gradient_variance = event.gradient_square, event.gradient_variance
            seen.progress, seen.batch_scale = event.progress, event.batch_scale

    def apply_report(self, job: MasterState, worker: Worker, report: LeaseReport, now: float) -> Actions:
        """Take what a worker reports of a lease. PoisonShard."""
        return leases.apply_report(job, worker, report, now)

    def take_leases(self, job: MasterState, worker: Worker, count: int, now: float) -> list[shards.SourcedLease]:
        """Up to `count` leases that are no evaluation's."""
        return []

    @abstractmethod
    def is_drained(self, job: MasterState) -> bool:
        """Whether no lease will come any more, if no evaluation is open."""

    def can_take_leases(self, worker: Worker) -> bool:
        return worker.state in (WorkerState.MEMBER, WorkerState.FINISHED)

    def on_evaluation_finished(
        self, job: MasterState, evaluation: OpenEvaluation, metrics: Mapping[str, float], now: float
    ) -> Actions:
        """All workers of a training hear the result."""
        return leases.announce_result(job, evaluation.step, metrics)

    def end_training(self, job: MasterState, reason: str) -> bool:
        """End the training as a callback asked, and keep its model. False: the workers agree on that themselves."""
        return False

    # ---- due

    def due(self, job: MasterState, now: float) -> Event | None:
        """The next decision, or None when there is nothing to decide now."""
        if job.is_over:
            return None
        for decide in self.decisions:
            if (event := decide(job, now)) is not None:
                return event
        return None

    # ---- lost

    def on_worker_lost(self, job: MasterState, worker: Worker, now: float) -> Actions:
        """A worker is gone: what it held is free again. Its leases go back, its evaluations are up to the others."""
        reason = "abandoned: nobody holds the weights of this step any more"
        abandoned = job.ledger.evaluations.remove_worker(worker.id)
        return [job.add_log_entry(now, "evaluation", reason=reason, step=step) for step in abandoned]

    def keeps_its_state(self, job: MasterState, worker: Worker) -> bool:
        """Whether a worker that was taken for lost, and is heard again, goes on as it was."""
        return True

    def expire_lease(self, job: MasterState, lease_id: int, now: float) -> Actions:
        """Take back a lease that made no progress. PoisonShard."""
        return leases.expire_lease(job, lease_id, now)

    @abstractmethod
    def on_lease_overdue(self, job: MasterState, worker: Worker, reason: str, now: float) -> Actions:
        """A lease of this worker was taken back because it made no progress."""

    def open_queues(self, job: MasterState) -> Iterable[shards.ShardQueue]:
        """All queues that leases are taken from."""
        return [evaluation.queue for evaluation in job.ledger.evaluations.open.values()]

    def state_holders(self, job: MasterState) -> list[Worker]:
        """The workers that a stopping job waits for, since they can write its last checkpoint."""
        return []

    def has_state_to_save(self, job: MasterState) -> bool:
        """Whether there is a state to save when the job fails, as long as somebody holds it."""
        return False

    def on_failing(self, worker: WorkerId, reason: str) -> Actions:
        """What a holder of the state is told when the job has failed."""
        return []

    def on_final_save_requested(self, worker: WorkerId) -> Actions:
        """What a worker is told before it is asked to save the state of a job that has failed."""
        return []

    # ---- status, and messages that a reconnect sends again

    def pending_messages(self, job: MasterState, worker: Worker, entered: int) -> Actions:
        """What a worker in round `entered` (0: none) has to know of the work of this job."""
        return []

    def pending_result(self, worker: Worker, step: int, metrics: Mapping[str, float]) -> Actions:
        """The newest result of an evaluation, which this worker has not heard."""
        worker.newest_result_sent = step
        return [send_message(worker.id, evaluation=pb.EvaluationResult(step=step, metrics=metrics))]

    @abstractmethod
    def known_progress(self, job: MasterState) -> int:
        """How far the job is as the journal knows it: steps, or records where work is leased."""

    def describe_progress(self, job: MasterState) -> str:
        return f"record {self.known_progress(job)}"

    @abstractmethod
    def done_records(self, job: MasterState) -> int:
        """Records that are trained, evaluated or predicted."""

    def epochs(self, job: MasterState) -> int:
        """How many epochs the plan reaches into; 0: nobody knows yet."""
        plan = job.ledger.plan
        if plan is None or not plan.records_per_epoch:
            return job.spec.plan.epochs
        return -(-plan.total_records // plan.records_per_epoch)

    def newest_loss(self, job: MasterState) -> tuple[int, float]:
        """The newest step whose loss is known, and its loss; (0, 0.0) before the first one."""
        return job.ledger.loss_curve.step, job.ledger.loss_curve.loss

    def complete_status(self, job: MasterState, status: pb.JobStatus) -> None:
        """Fill in the fields of a status that differ by strategy."""
        status.max_batch_scale = 1

    def progress_scalars(self, job: MasterState) -> dict[str, float]:
        """Curves by step that only this strategy has."""
        return {}

    def expects_steps(self) -> bool:
        """Whether a running job whose steps do not end has come to a standstill."""
        return True

    def output(self, job: MasterState) -> str:
        """Where the result of the job is; "": there is none yet."""
        return job.ledger.output

    def describe_stop(self, *, at_once: bool) -> str:
        return "stopping at once" if at_once else "stopping after the running step, with a checkpoint"

    def validate(self, job: MasterState) -> None:
        """Assert the invariants of the work that is leased."""
        workers = job.ledger.membership.workers
        for queue in self.open_queues(job):
            queue.validate()
            for lease in queue.leases.values():
                assert workers[lease.worker].state not in GONE_WORKER_STATES, (
                    f"{lease.worker} is gone but holds a lease"
                )
