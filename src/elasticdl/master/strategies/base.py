"""The interface of a strategy: everything that depends on how workers share the work of a job. Pure."""

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

    A strategy is chosen when the job begins and has no state of its own: everything is in the MasterState. The methods
    are grouped: `handle` and its events, `due` and its decisions, losses of workers, and what the user is shown.
    """

    handlers: ClassVar[Mapping[type, EventHandler]] = {}  # of events that only this strategy handles
    decisions: ClassVar[tuple[Decision, ...]]  # in order of precedence
    counts_repeated_losses: ClassVar[bool] = True  # whether losses in a row without progress become failures

    # ---- handle

    def handle(self, job: MasterState, event: Event, now: float) -> Actions:
        """Handle an event whose handling differs by strategy; one without a handler changes nothing."""
        handler = self.handlers.get(type(event))
        return handler(job, event, now) if handler is not None else []

    @abstractmethod
    def on_plan_reported(self, job: MasterState, event: DataPlanReported, now: float) -> Actions:
        """A worker has counted the data; the first reported plan is in the ledger."""

    @abstractmethod
    def on_worker_finished(self, job: MasterState, event: WorkerFinished, now: float) -> Actions:
        """A worker has finished its part or was told to stop."""

    @abstractmethod
    def on_worker_ready(self, job: MasterState, worker: Worker, now: float) -> None:
        """A worker has started: set its new state."""

    def on_worker_joined(self, job: MasterState, worker: Worker, now: float) -> Actions:
        """A worker has reported Ready. Called after `on_worker_ready`."""
        return []

    def on_worker_connected(self, job: MasterState, event: WorkerConnected, now: float) -> Actions:
        """A worker has connected, and reported its round and step."""
        return []

    def on_worker_replaced(self, job: MasterState, worker: Worker, now: float) -> Actions:
        """Another process has connected with the name of this worker."""
        return []

    def on_goodbye(self, job: MasterState, worker: Worker, now: float) -> Actions:
        """A worker ends as planned."""
        return []

    def on_heartbeat(self, job: MasterState, event: HeartbeatReceived, now: float) -> None:
        """Observe the progress that a heartbeat reports."""
        observed = job.observed
        if event.step > observed.step:
            observed.record_progress(event.step, event.records, now)
            observed.loss, observed.learning_rate = event.loss, event.learning_rate
            observed.gradient_square, observed.gradient_variance = event.gradient_square, event.gradient_variance
            observed.progress, observed.batch_scale = event.progress, event.batch_scale

    def apply_report(self, job: MasterState, worker: Worker, report: LeaseReport, now: float) -> Actions:
        """Apply a worker's report about a lease. PoisonShard."""
        return leases.apply_report(job, worker, report, now)

    def take_leases(self, job: MasterState, worker: Worker, count: int, now: float) -> list[shards.SourcedLease]:
        """Up to `count` leases that do not belong to an evaluation."""
        return []

    @abstractmethod
    def is_drained(self, job: MasterState) -> bool:
        """Whether there will be no more leases, apart from those of open evaluations."""

    def can_take_leases(self, worker: Worker) -> bool:
        return worker.state in (WorkerState.MEMBER, WorkerState.FINISHED)

    def on_evaluation_finished(
        self, job: MasterState, evaluation: OpenEvaluation, metrics: Mapping[str, float], now: float
    ) -> Actions:
        """Send the result of an evaluation to the workers."""
        return leases.announce_result(job, evaluation.step, metrics)

    def end_training(self, job: MasterState, reason: str) -> bool:
        """End the training for a callback, and export the model. False: the workers agree on that themselves."""
        return False

    # ---- due

    def due(self, job: MasterState, now: float) -> Event | None:
        """The next decision, or None if there is nothing to decide now."""
        if job.is_over:
            return None
        for decide in self.decisions:
            if (event := decide(job, now)) is not None:
                return event
        return None

    # ---- lost

    def on_worker_lost(self, job: MasterState, worker: Worker, now: float) -> Actions:
        """A worker is gone: give back its leases. Other workers continue its evaluations."""
        reason = "abandoned: no worker holds the weights of this step any more"
        abandoned = job.ledger.evaluations.remove_worker(worker.id)
        return [job.add_log_entry(now, "evaluation", reason=reason, step=step) for step in abandoned]

    def keeps_its_state(self, job: MasterState, worker: Worker) -> bool:
        """Whether a worker that was considered lost and is heard again keeps its state."""
        return True

    def expire_lease(self, job: MasterState, lease_id: int, now: float) -> Actions:
        """Take back a lease that made no progress. PoisonShard."""
        return leases.expire_lease(job, lease_id, now)

    @abstractmethod
    def on_lease_overdue(self, job: MasterState, worker: Worker, reason: str, now: float) -> Actions:
        """A lease of this worker was taken back because it made no progress."""

    def open_queues(self, job: MasterState) -> Iterable[shards.ShardQueue]:
        """The queues that leases are taken from."""
        return [evaluation.queue for evaluation in job.ledger.evaluations.open.values()]

    def state_holders(self, job: MasterState) -> list[Worker]:
        """The workers that a stopping job waits for, since they can write its last checkpoint."""
        return []

    def has_state_to_save(self, job: MasterState) -> bool:
        """Whether a job that fails has a state to save, provided that a worker holds it."""
        return False

    def on_failing(self, worker: WorkerId, reason: str) -> Actions:
        """Messages for a holder of the state when the job has failed."""
        return []

    def on_final_save_requested(self, worker: WorkerId) -> Actions:
        """Messages for a worker before it is asked to save the state of a job that has failed."""
        return []

    # ---- status, and messages that a reconnect sends again

    def pending_messages(self, job: MasterState, worker: Worker, entered: int) -> Actions:
        """Messages about the work of this job that a worker in round `entered` (0: none) needs."""
        return []

    def pending_result(self, worker: Worker, step: int, metrics: Mapping[str, float]) -> Actions:
        """Send the newest result of an evaluation to a worker that does not have it yet."""
        worker.newest_result_sent = step
        return [send_message(worker.id, evaluation=pb.EvaluationResult(step=step, metrics=metrics))]

    @abstractmethod
    def known_progress(self, job: MasterState) -> int:
        """The journaled progress of the job: steps, or records if work is leased."""

    def describe_progress(self, job: MasterState) -> str:
        return f"record {self.known_progress(job)}"

    @abstractmethod
    def done_records(self, job: MasterState) -> int:
        """Records that are trained, evaluated or predicted so far."""

    def epochs(self, job: MasterState) -> int:
        """The number of epochs of the plan, the last one perhaps partial; 0: not known yet."""
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
        """Further curves by step that only this strategy has."""
        return {}

    def expects_steps(self) -> bool:
        """Whether a running job that completes no steps is stalled."""
        return True

    def output(self, job: MasterState) -> str:
        """Where the output of the job is; "": there is none yet."""
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
