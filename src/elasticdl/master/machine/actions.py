"""What to do: the actions that the state machine returns. The loop performs them once the event is journaled."""

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
    """Send a message to a worker or ps. It is dropped without a session: after a Hello the master sends it again."""

    replica: ReplicaId
    message: pb.MasterMessage


class ReplyToExchange(NamedTuple):
    """Answer an exchange. None: no answer, the worker must ask again (it is unknown, gone or late)."""

    worker: WorkerId
    request: int
    reply: LeaseReply | None


class LaunchReplica(NamedTuple):
    role: str  # "worker" or "ps"
    replica: ReplicaId
    memory_raises: int = 0  # how often the memory of its role has been raised
    desired_workers: int = 0  # of a worker: how many there should be; 0: a ps
    avoid_nodes_of: tuple[str, ...] = ()  # replicas whose node may be lost


class SignalReplica(NamedTuple):
    replica: ReplicaId
    signal: int


@dataclass(frozen=True, slots=True)
class EventLogEntry:
    """One line of the event log: `reason` is for users, the other fields are for programs."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_inf_nan="constants")

    at: float
    kind: str
    replica: str  # the worker or ps it happened to; "": the job
    reason: str
    round: int
    step: int
    cost_s: float
    metrics: dict[str, float] = field(default_factory=dict)  # of an evaluation; a metric may be NaN

    def to_document(self) -> dict[str, Any]:
        """The entry as an object of events.jsonl; only an evaluation has the key `metrics`."""
        document = asdict(self)
        if not self.metrics:
            del document["metrics"]
        return document


# Kinds of entries that appear again and again in an undisturbed job.
ROUTINE_KINDS = frozenset({"evaluation", "checkpoint", "epoch-ended", "bad-record"})


class WriteLogEntry(NamedTuple):
    """Write entry `number` (1, 2, 3 …) of the log. A restarted master writes only the missing ones."""

    number: int
    entry: EventLogEntry


class RecordMetrics(NamedTuple):
    """Add the result of an evaluation to the curves."""

    step: int
    metrics: dict[str, float]


class RecordLosses(NamedTuple):
    """Add points of the loss curve and ended epochs to the curves; repeated on replay, as some may not be drawn yet."""

    points: tuple[LossPoint, ...]
    epochs: tuple[EpochLoss, ...]


Action = SendMessage | ReplyToExchange | LaunchReplica | SignalReplica | WriteLogEntry | RecordMetrics | RecordLosses
