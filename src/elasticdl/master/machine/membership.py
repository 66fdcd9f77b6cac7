"""The workers of a job, their states, and why the process of a replica ended."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from elasticdl.master.machine.events import ReplicaExit
from elasticdl.master.strategies.shards import SourcedLease
from elasticdl.spec.ids import ReplicaId, WorkerId


class WorkerState(StrEnum):
    LAUNCHING = "launching"
    STARTING = "starting"
    READY = "ready"
    JOINING = "joining"
    MEMBER = "member"
    LEAVING = "leaving"
    FINISHED = "finished"
    LEFT = "left"
    LOST = "lost"


GONE_WORKER_STATES = frozenset({WorkerState.LEFT, WorkerState.LOST})
NEWCOMER_STATES = frozenset({WorkerState.READY, WorkerState.JOINING})
# Workers that count towards the desired number: neither leaving nor gone.
ACTIVE_WORKER_STATES = frozenset(
    {WorkerState.LAUNCHING, WorkerState.STARTING, WorkerState.READY, WorkerState.JOINING, WorkerState.MEMBER}
)


class LeaseReply(NamedTuple):
    """The reply to a worker's newest exchange, kept in case the worker repeats its request."""

    request: int
    leases: tuple[SourcedLease, ...]
    is_drained: bool


@dataclass(slots=True)
class Replica:
    """What the master knows about a worker or a ps."""

    id: ReplicaId
    number: int  # in the order of launch, from 0
    state: StrEnum
    since: float  # when it entered this state
    reason: str = ""
    pid: int = 0
    reported_pid: int = 0  # as in its Hello; 0: it has not connected yet
    host: str = ""
    sequence: int = 0  # of the newest message that was handled
    is_connected: bool = False
    has_said_goodbye: bool = False
    has_exited: bool = False
    failure: str = ""  # the failure that it reported
    stall_reason: str = ""  # why it counts as stalled; "": it does not
    memory_raises: int = 0  # how often the memory of its role had been raised when it was launched


@dataclass(slots=True)
class Worker(Replica):
    id: WorkerId
    state: WorkerState
    is_external: bool = False  # started by hand: no launcher watches its process
    store_address: str = ""
    peer_address: str = ""
    must_reset: bool = False  # told to drop its state, and not Ready again yet
    state_before_loss: WorkerState | None = None  # its state before it was considered lost
    is_leave_requested: bool = False
    last_reply: LeaseReply | None = None
    newest_result_sent: int = -1  # step of the newest evaluation whose result it was sent
    join_after: float = 0.0  # no state transfer to it before this time
    hung_at: float = 0.0  # when a lease of it expired, if it has taken none since; 0: none did
    is_killed: bool = False  # killed by the master, which ignores its messages

    @property
    def is_present(self) -> bool:
        """Whether it is alive as far as is known, and its process is not ending."""
        return self.state not in GONE_WORKER_STATES and not self.has_said_goodbye

    @property
    def is_active(self) -> bool:
        return self.state in ACTIVE_WORKER_STATES and not self.has_said_goodbye

    def set_state(self, state: WorkerState, now: float, reason: str = "") -> None:
        if state is not self.state:
            self.state, self.since = state, now
        self.reason = reason


@dataclass(slots=True)
class Membership:
    """Every worker that the job ever had. Ids are not reused."""

    workers: dict[WorkerId, Worker] = field(default_factory=dict)
    next_number: int = 0

    def next_id(self) -> WorkerId:
        number = self.next_number
        # An external worker may already have the next name.
        while (worker := WorkerId(f"worker-{number}")) in self.workers:
            number += 1
        return worker

    def add(self, worker: WorkerId, state: WorkerState, now: float, *, external: bool = False) -> Worker:
        self.workers[worker] = Worker(worker, self.next_number, state, now, is_external=external)
        self.next_number += 1
        return self.workers[worker]

    @property
    def running_count(self) -> int:
        """How many workers still hold their devices."""
        return sum(worker.state not in GONE_WORKER_STATES for worker in self.workers.values())

    def present_workers(self) -> Iterator[Worker]:
        return (worker for worker in self.workers.values() if worker.is_present)

    def is_present(self, worker: WorkerId) -> bool:
        member = self.workers.get(worker)
        return member is not None and member.is_present

    def active_workers(self) -> list[Worker]:
        """The workers that count towards the desired number, the youngest last."""
        return sorted(
            (worker for worker in self.workers.values() if worker.is_active), key=lambda worker: worker.number
        )

    def newcomers(self, holders: list[WorkerId]) -> list[Worker]:
        """The workers that are ready to join, the oldest first."""
        return [
            worker for worker in self.active_workers() if worker.state in NEWCOMER_STATES and worker.id not in holders
        ]


class ExitCause(NamedTuple):
    """Why a replica is gone."""

    reason: str
    is_crash: bool  # only this counts against the failure budget
    is_expected: bool = False  # it left as planned; otherwise it is lost


# What a cluster does to pods: not the fault of the process.
PREEMPTION_CAUSES = frozenset({"preempted", "evicted", "drained", "deleted", "node-lost"})
OUT_OF_MEMORY = "oom"


def classify_worker_exit(worker: Worker, exit_: ReplicaExit, log: str) -> ExitCause:
    is_leaving = worker.has_said_goodbye or worker.state in (WorkerState.LEAVING, WorkerState.FINISHED)
    return classify_exit(exit_, is_leaving=is_leaving, reason=worker.reason, failure=worker.failure, log=log)


def classify_exit(exit_: ReplicaExit, *, is_leaving: bool, reason: str, failure: str, log: str) -> ExitCause:
    """Whether a replica left, was preempted or crashed; only crashes count against the failure budget.

    `is_leaving`: it was expected to end, for `reason`. `failure`: what it reported itself. `log`: where its log is.
    """
    code, signal_number = exit_.code, exit_.signal
    if exit_.cause in PREEMPTION_CAUSES:
        if is_leaving:
            return ExitCause(reason or "left", is_crash=False, is_expected=True)
        return ExitCause(f"{exit_.cause}: {exit_.reason}" if exit_.reason else exit_.cause, is_crash=False)
    if exit_.cause == OUT_OF_MEMORY:
        detail = f": {exit_.reason}" if exit_.reason else ""
        return ExitCause(f"ran out of memory{detail}{_peak_memory_text(exit_)}", is_crash=True)
    if code == 0 and is_leaving:
        return ExitCause(reason or "left", is_crash=False, is_expected=True)
    if code is None and signal_number is None:
        return ExitCause("ended while no launcher was running", is_crash=False, is_expected=is_leaving)
    if signal_number in (signal.SIGKILL, signal.SIGTERM):
        if is_leaving:
            return ExitCause(reason or "left", is_crash=False, is_expected=True)
        reason = f"preempted: killed by {signal.Signals(signal_number).name}{_peak_memory_text(exit_)}"
        return ExitCause(reason, is_crash=False)
    exit_text = f"exited with code {code}" if signal_number is None else f"killed by {_signal_name(signal_number)}"
    last_words = exit_.reason.removeprefix(exit_text).removeprefix(": ") if signal_number is None else ""
    error = f": {failure or last_words}" if failure or last_words else " without an error message"
    return ExitCause(f"crashed: {exit_text}{error}; its log is {log}", is_crash=True)


def _peak_memory_text(exit_: ReplicaExit) -> str:
    return f" (its memory peaked at {exit_.peak_bytes / (1 << 20):,.0f} MiB)" if exit_.peak_bytes else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
