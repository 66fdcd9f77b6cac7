"""What to do: the state machine's answers. Imperative, performed by the loop after the journal has the event."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, NamedTuple

from pydantic import ConfigDict

from elasticdl.master.machine.events import EpochLoss
from elasticdl.master.machine.membership import LeaseReply
from elasticdl.master.strategies.loss_curve import LossPoint
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec.ids import ReplicaId, WorkerId


class SendMessage(NamedTuple):
    """A message on the stream of a worker or ps; dropped where there is none: a greeting sends what matters again."""

    replica: ReplicaId
    message: pb.MasterMessage


class ReplyToExchange(NamedTuple):
    """What an exchange gets; None: nothing, ask again (someone unknown, gone or late asked)."""

    worker: WorkerId
    request: int
    reply: LeaseReply | None


class LaunchReplica(NamedTuple):
    role: str  # "worker" or "ps"
    replica: ReplicaId
    memory_raises: int = 0  # how often the memory of its role was raised
    desired_workers: int = 0  # how many workers there should be; 0: it is no worker
    avoid_nodes_of: tuple[str, ...] = ()  # replicas whose node may be lost


class SignalReplica(NamedTuple):
    replica: ReplicaId
    signal: int


@dataclass(frozen=True, slots=True)
class EventLogEntry:
    """One line of the event log: what happened, for people in `reason`, for programs in the other fields."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_inf_nan="constants")

    at: float
    kind: str
    replica: str  # the worker or ps it happened to; "": the job
    reason: str
    round: int
    step: int
    cost_s: float
    metrics: dict[str, float] = field(default_factory=dict)  # of an evaluation; one may be NaN

    def to_document(self) -> dict[str, Any]:
        """The entry as a document of events.jsonl; only an evaluation has metrics there."""
        document = asdict(self)
        if not self.metrics:
            del document["metrics"]
        return document


# Kinds of entries that come again and again, whatever happens.
ROUTINE_KINDS = frozenset({"evaluation", "checkpoint", "epoch-ended", "bad-record"})


class WriteLogEntry(NamedTuple):
    """Entry number `number` (1, 2, 3 …) of the log: a restarted master writes only what is missing."""

    number: int
    entry: EventLogEntry


class RecordMetrics(NamedTuple):
    """Result of an evaluation, for the curves."""

    step: int
    metrics: dict[str, float]


class RecordLosses(NamedTuple):
    """New points of the loss curve, and epochs that ended; on replay again, since some may not be drawn yet."""

    points: tuple[LossPoint, ...]
    epochs: tuple[EpochLoss, ...]


Action = SendMessage | ReplyToExchange | LaunchReplica | SignalReplica | WriteLogEntry | RecordMetrics | RecordLosses
