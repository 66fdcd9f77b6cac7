"""Messages that mean nothing are told to their sender."""

from __future__ import annotations

import pytest

from elasticdl.errors import SpecError
from elasticdl.master.runtime import codec
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec.ids import WorkerId


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (pb.WorkerMessage(planned=pb.Planned(progress=b"\xfb")), "planned.progress"),
        (pb.WorkerMessage(losses=pb.LossesApplied(step=[1, 2], loss=[0.5])), "losses"),
    ],
)
def test_a_message_that_cannot_be_read_is_the_senders_error(message: pb.WorkerMessage, told: str) -> None:
    with pytest.raises(SpecError, match=told):
        codec.event_from_worker(WorkerId("worker-0"), message)
