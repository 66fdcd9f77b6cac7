"""The workers of a job and the life of each: launching, starting, ready, joining, member, leaving, finished, gone."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from elasticdl.master.machine.events import ReplicaExit
from elasticdl.master.strategies.shards import ShardLease
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
# Workers that count towards the desired number: they are here, and stay.
ACTIVE_WORKER_STATES = frozenset(
    {WorkerState.LAUNCHING, WorkerState.STARTING, WorkerState.READY, WorkerState.JOINING, WorkerState.MEMBER}
)


class LeaseReply(NamedTuple):
    """The reply to a worker's newest exchange, kept in case it asks again."""

    request: int
    leases: tuple[tuple[str, int, ShardLease], ...]  # (source, step, lease)
    is_drained: bool


@dataclass(slots=True)
class Replica:
    """What the master knows of a worker or a ps."""

    id: ReplicaId
    number: int  # order of arrival: the youngest has the highest
    state: StrEnum
    since: float
    reason: str = ""
    pid: int = 0
    reported_pid: int = 0  # as it said itself
    host: str = ""
    sequence: int = 0  # newest message that took effect
    is_connected: bool = False
    has_said_goodbye: bool = False
    has_exited: bool = False
    failure: str = ""  # why it fails, as it said itself
    stall_reason: str = ""  # where it stands still, once that was noticed; "": it does not
    memory_raises: int = 0  # how often the memory of its role had been raised when it was launched


@dataclass(slots=True)
class Worker(Replica):
    id: WorkerId
    state: WorkerState
    is_external: bool = False  # came by itself, no launcher watches its process
    store_address: str = ""
    peer_address: str = ""
    must_reset: bool = False  # told to drop its state, has not said Ready since
    state_before_loss: WorkerState | None = None  # what it was when it was taken for lost
    is_leave_requested: bool = False
    last_reply: LeaseReply | None = None
    newest_result_sent: int = -1  # step of the newest evaluation it was told the result of
    join_after: float = 0.0  # no hand-over before this
    hung_at: float = 0.0  # a lease of an evaluation expired then, and it has asked for nothing since; 0: no
    is_killed: bool = False  # killed by us: whatever it says meanwhile is not heard

    @property
    def is_present(self) -> bool:
        """Alive as far as anybody knows, and not on its way out of the process."""
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
    """Every worker the job ever had. Ids are never used again."""

    workers: dict[WorkerId, Worker] = field(default_factory=dict)
    next_number: int = 0

    def next_id(self) -> WorkerId:
        number = self.next_number
        # An external worker may have chosen a name of ours.
        while (worker := WorkerId(f"worker-{number}")) in self.workers:
            number += 1
        return worker

    def add(self, worker: WorkerId, state: WorkerState, now: float, *, external: bool = False) -> Worker:
        added = Worker(worker, self.next_number, state, now, is_external=external)
        self.next_number += 1
        self.workers[worker] = added
        return added

    @property
    def running_count(self) -> int:
        """How many workers keep their devices."""
        return sum(worker.state not in GONE_WORKER_STATES for worker in self.workers.values())

    def present_workers(self) -> Iterator[Worker]:
        return (worker for worker in self.workers.values() if worker.is_present)

    def is_present(self, worker: WorkerId) -> bool:
        member = self.workers.get(worker)
        return member is not None and member.is_present

    def active_workers(self) -> list[Worker]:
        """The workers that count towards the desired number, the youngest last."""
        return sorted((w for w in self.workers.values() if w.is_active), key=lambda w: w.number)

    def newcomers(self, holders: list[WorkerId]) -> list[Worker]:
        """The workers that are ready to join, the oldest first."""
        return [w for w in self.active_workers() if w.state in NEWCOMER_STATES and w.id not in holders]


class ExitCause(NamedTuple):
    """Why a replica is gone."""

    reason: str
    crashed: bool  # only this counts against the failure budget
    is_expected: bool = False  # it left; otherwise it is lost


# What a cluster does to pods; nothing of it is their fault.
PREEMPTION_CAUSES = frozenset({"preempted", "evicted", "drained", "deleted", "node-lost"})
OUT_OF_MEMORY = "oom"


def classify_worker_exit(worker: Worker, exit_: ReplicaExit, log: str) -> ExitCause:
    is_going = worker.has_said_goodbye or worker.state in (WorkerState.LEAVING, WorkerState.FINISHED)
    return classify_exit(exit_, is_going=is_going, reason=worker.reason, failure=worker.failure, log=log)


def classify_exit(exit_: ReplicaExit, *, is_going: bool, reason: str, failure: str, log: str) -> ExitCause:
    """Left, taken away or crashed: only the last counts against the failure budget."""
    code, number = exit_.code, exit_.signal
    if exit_.cause in PREEMPTION_CAUSES:
        if is_going:
            return ExitCause(reason or "left", crashed=False, is_expected=True)
        return ExitCause(f"{exit_.cause}: {exit_.reason}" if exit_.reason else exit_.cause, crashed=False)
    if exit_.cause == OUT_OF_MEMORY:
        why = f": {exit_.reason}" if exit_.reason else ""
        return ExitCause(f"ran out of memory{why}{_peak_memory_text(exit_)}", crashed=True)
    if code == 0 and is_going:
        return ExitCause(reason or "left", crashed=False, is_expected=True)
    if code is None and number is None:
        return ExitCause("ended while no launcher watched", crashed=False, is_expected=is_going)
    if number in (signal.SIGKILL, signal.SIGTERM):
        if is_going:
            return ExitCause(reason or "left", crashed=False, is_expected=True)
        reason = f"preempted: killed by {signal.Signals(number).name}{_peak_memory_text(exit_)}"
        return ExitCause(reason, crashed=False)
    how = f"exited with code {code}" if number is None else f"killed by {_signal_name(number)}"
    left = exit_.reason.removeprefix(how).removeprefix(": ") if number is None else ""
    why = f": {failure or left}" if failure or left else " without saying why"
    return ExitCause(f"crashed: {how}{why}; its log is {log}", crashed=True)


def _peak_memory_text(exit_: ReplicaExit) -> str:
    return f" (its memory peaked at {exit_.peak_bytes / (1 << 20):,.0f} MiB)" if exit_.peak_bytes else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
