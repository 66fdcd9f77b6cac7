"""Messages of workers, ps and users to the master, from the bytes of the call to the event in the journal.

An event reads back from the journal unchanged; a message without meaning is a SpecError for its sender.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from google.protobuf.message import DecodeError

from elasticdl.errors import SpecError
from elasticdl.master.machine import events as ev
from elasticdl.master.ps_fleet import ps_events
from elasticdl.master.runtime import codec
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc import methods
from elasticdl.spec.ids import PsId, WorkerId

_BEATS = (ev.HeartbeatReceived, ps_events.PsHeartbeatReceived)
_METHODS = (methods.SESSION, methods.EXCHANGE, methods.WATCH, methods.SCALE, methods.STOP)


def fuzz_one(data: bytes) -> None:
    """The first byte chooses the call."""
    if not data:
        return
    method = _METHODS[data[0] % len(_METHODS)]
    try:
        message = method.request.FromString(data[1:])
    except DecodeError:
        return  # gRPC answers it
    for event in _events(message):
        if isinstance(event, _BEATS):
            continue  # never journaled
        decoded, recorded_at = codec.decode_event(codec.encode_event(event, 12.5))
        assert (repr(decoded), recorded_at) == (repr(event), 12.5)


def _events(message: object) -> Iterator[ev.Event]:
    if isinstance(message, pb.ExchangeRequest):
        yield codec.event_from_exchange(message)
    elif isinstance(message, pb.WorkerMessage):
        for event in (_worker_event(message), _ps_event(message)):
            if event is not None:
                yield event


def _worker_event(message: pb.WorkerMessage) -> ev.Event | None:
    with contextlib.suppress(SpecError):
        return codec.event_from_worker(WorkerId("worker-1"), message)
    return None


def _ps_event(message: pb.WorkerMessage) -> ev.Event | None:
    with contextlib.suppress(SpecError):
        return codec.event_from_ps(PsId("ps-1"), message)
    return None


def seeds() -> Iterator[bytes]:
    for message in (
        pb.WorkerMessage(hello=pb.Hello(replica="worker-1", pid=7, host="here", store_address="127.0.0.1:5")),
        pb.WorkerMessage(heartbeat=pb.Heartbeat(round=1, step=5, loss=0.5)),
        pb.WorkerMessage(sequence=3, finished=pb.Finished(step=9, loss=1.5, epoch=pb.EpochLoss(epoch=1))),
        pb.WorkerMessage(sequence=4, data_plan=pb.DataPlan(total_steps=7, progress=b"{}")),
        pb.WorkerMessage(
            sequence=5, loss_report=pb.LossReport(until=2, step=[1], loss=[0.5], learning_rate=[1], records=[8])
        ),
        pb.WorkerMessage(ps_heartbeat=pb.PsHeartbeat(map_version=2, staleness=[1, 2])),
        pb.WorkerMessage(task_report=pb.TaskReport(version=3, rows=4)),
    ):
        yield b"\0" + message.SerializeToString()
    report = pb.LeaseReport(lease=3, done=5, finished=True)
    report.sums["auc"].values.extend([1.0, 2.0])
    yield b"\1" + pb.ExchangeRequest(worker="worker-1", request=2, reports=[report], max_leases=1).SerializeToString()
    yield b"\3" + pb.ScaleRequest(workers=3).SerializeToString()
