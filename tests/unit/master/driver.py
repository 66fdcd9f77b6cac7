"""Steps a StateMachine by hand, as the loop does: handle, decide, journal. Time moves only by `wait`."""

from __future__ import annotations

from typing import Any

from elasticdl.master.machine import events as ev
from elasticdl.master.machine.actions import (
    Action,
    LaunchReplica,
    ReplyToExchange,
    SendMessage,
    SignalReplica,
    WriteLogEntry,
)
from elasticdl.master.machine.membership import LeaseReply, Worker, WorkerState
from elasticdl.master.machine.state_machine import StateMachine
from elasticdl.master.ps_fleet.ps_events import PsHeartbeatReceived
from elasticdl.master.runtime import codec
from elasticdl.master.strategies.rounds import Round
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import (
    CheckpointSpec,
    DataSpec,
    EvaluationSpec,
    JobKind,
    JobSpec,
    ModelSpec,
    PlanSpec,
    PsMode,
    PsSpec,
    TimingSpec,
    WorkerId,
    WorkersSpec,
)

START = 1000.0


def job_spec(
    *,
    kind: JobKind = JobKind.TRAINING,
    workers: int = 2,
    min_workers: int = 1,
    max_workers: int = 4,
    ranks: int = 4,
    budget: int = 3,
    output: str = "",
    shard_records: int = 10,
    timing: TimingSpec | None = None,
    ps: int = 0,
    backups: int = 0,
    mode: PsMode = PsMode.HYBRID,
    checkpoint_steps: int = 0,
    evaluation: EvaluationSpec | None = None,
) -> JobSpec:
    return JobSpec(
        name="job",
        kind=kind,
        model=ModelSpec(definition="zoo.model.forward"),
        workers=WorkersSpec(replicas=workers, min=min_workers, max=max_workers, failure_budget=budget),
        plan=PlanSpec(logical_ranks=ranks),
        data=DataSpec(shard_records=shard_records),
        timing=timing or TimingSpec(),
        checkpoint=CheckpointSpec(every_steps=checkpoint_steps),
        evaluation=evaluation or EvaluationSpec(),
        output=output,
        ps=PsSpec(replicas=ps, backups=backups, mode=mode),
    )


class Driver:
    def __init__(self, spec: JobSpec, initial_snapshot: str = "") -> None:
        self.spec = spec
        self.machine = StateMachine(spec, initial_snapshot=initial_snapshot)
        self.now = START
        self.journal: list[bytes] = []
        self.sequences: dict[str, int] = {}
        self.do(ev.MasterStarted(1))
        self.do(ev.ReplicasListed((), ()))

    def do(self, *events: ev.Event) -> list[Action]:
        """One turn of the loop."""
        actions: list[Action] = []
        for event in events:
            actions += self._handle(event)
        while (decision := self.machine.due(self.now)) is not None:
            actions += self._handle(decision)
        self.machine.validate()
        return actions

    def _handle(self, event: ev.Event) -> list[Action]:
        if not isinstance(event, ev.HeartbeatReceived | PsHeartbeatReceived):
            self.journal.append(codec.encode_event(event, self.now))
        return self.machine.handle(event, self.now)

    def wait(self, seconds: float) -> list[Action]:
        self.now += seconds
        return self.do()

    def replayed(self) -> StateMachine:
        state = StateMachine(self.spec)
        for payload in self.journal:
            event, now = codec.decode_event(payload)
            state.handle(event, now)
        return state

    # ---- messages of workers

    def sequence(self, worker: str) -> int:
        self.sequences[worker] = self.sequences.get(worker, 0) + 1
        return self.sequences[worker]

    def connect(self, worker: str, *, pid: int = 0, entered: int = 0, ready: bool = False) -> list[Action]:
        addresses = (f"{worker}:store", f"{worker}:handover")
        pid = pid or 100 + self.worker_number(worker)
        return self.do(ev.WorkerConnected(WorkerId(worker), pid, "host", *addresses, entered, -1, ready, False))

    @staticmethod
    def worker_number(worker: str) -> int:
        return int(worker.rpartition("-")[2])

    def ready(self, worker: str) -> list[Action]:
        return self.do(ev.WorkerReady(WorkerId(worker), self.sequence(worker)))

    def join(self, *workers: str) -> list[Action]:
        """Connect these workers and report all of them Ready within one turn."""
        for worker in workers:
            self.connect(worker)
        return self.do(*(ev.WorkerReady(WorkerId(worker), self.sequence(worker)) for worker in workers))

    def enter(self, step: int = 1, gap_s: float = 0.0) -> list[Action]:
        """All members of the newest round report that they entered it."""
        newest = self.newest
        events = [
            ev.RoundEntered(worker, self.sequence(worker), newest.id, step, gap_s)
            for worker in newest.workers
            if self.worker(worker).is_present
        ]
        return self.do(*events)

    def heartbeat(
        self, worker: str, *, step: int = 0, compute_s: float = 0.0, in_round: int | None = None
    ) -> ev.HeartbeatReceived:
        entered = self.machine.state.ledger.rounds.current
        number = in_round if in_round is not None else entered.id if entered else 0
        return ev.HeartbeatReceived(WorkerId(worker), number, step, step * 8, 0.5, 0.02, compute_s, 0.1)

    def beat(self, worker: str, *, step: int = 0, compute_s: float = 0.0, in_round: int | None = None) -> list[Action]:
        return self.do(self.heartbeat(worker, step=step, compute_s=compute_s, in_round=in_round))

    def exit(self, worker: str, code: int | None = None, signal: int | None = None) -> list[Action]:
        return self.do(ev.ReplicaExited(ev.ReplicaExit(worker, 1, code, signal)))

    def leave(self, worker: str) -> list[Action]:
        return self.do(ev.WorkerLeaving(WorkerId(worker), self.sequence(worker), "preempted"))

    def goodbye(self, worker: str, reason: str = "done") -> list[Action]:
        return self.do(ev.WorkerSaidGoodbye(WorkerId(worker), self.sequence(worker), reason))

    def finish(self, *workers: str, step: int = 100, reason: str = "") -> list[Action]:
        return self.do(
            *(ev.WorkerFinished(WorkerId(worker), self.sequence(worker), step, step * 8, reason) for worker in workers)
        )

    def export(self, worker: str, path: str = "") -> list[Action]:
        return self.do(ev.ModelExported(WorkerId(worker), self.sequence(worker), path))

    def plan(self, worker: str, *, records: int, validation: int = 0, steps: int = 100) -> list[Action]:
        plan = ev.DataPlanReported(WorkerId(worker), self.sequence(worker), steps, records, records, steps, validation)
        return self.do(plan._replace(global_batch=8))

    def snapshot(self, worker: str, step: int) -> list[Action]:
        return self.do(ev.SnapshotHeld(WorkerId(worker), self.sequence(worker), step))

    def exchange(self, worker: str, request: int, *reports: ev.LeaseReport, want: int = 1) -> LeaseReply:
        actions = self.do(ev.ExchangeReceived(WorkerId(worker), request, reports, want, ()))
        (reply,) = [action for action in actions if isinstance(action, ReplyToExchange)]
        return reply.reply or LeaseReply(request, (), False)

    # ---- the resulting state

    @property
    def newest(self) -> Round:
        newest = self.machine.state.ledger.rounds.newest
        assert newest is not None
        return newest

    @property
    def phase(self) -> str:
        return self.machine.state.ledger.phase.name

    @property
    def reason(self) -> str:
        return self.machine.state.ledger.phase.reason

    def worker(self, worker: str) -> Worker:
        return self.machine.state.ledger.membership.workers[WorkerId(worker)]

    def state_of(self, worker: str) -> WorkerState:
        return self.worker(worker).state


def running(workers: int = 2, **spec: Any) -> Driver:
    """A training job whose workers have entered their first round."""
    driver = Driver(job_spec(workers=workers, **spec))
    driver.join(*(f"worker-{number}" for number in range(workers)))
    driver.enter()
    return driver


def sent_messages(actions: list[Action], worker: str, kind: str) -> list[pb.MasterMessage]:
    """Messages of one kind to one worker."""
    return [
        action.message
        for action in actions
        if isinstance(action, SendMessage) and action.replica == worker and action.message.WhichOneof("message") == kind
    ]


def launched_workers(actions: list[Action]) -> list[str]:
    return [action.replica for action in actions if isinstance(action, LaunchReplica) and action.role == "worker"]


def sent_signals(actions: list[Action]) -> list[tuple[str, int]]:
    return [
        (action.replica, int(action.signal))
        for action in actions
        if isinstance(action, SignalReplica) and not action.replica.startswith("ps-")
    ]


def log_kinds(actions: list[Action]) -> list[str]:
    return [action.entry.kind for action in actions if isinstance(action, WriteLogEntry)]
