"""Malformed messages of workers are errors of their sender."""

from __future__ import annotations

import pytest

from elasticdl.errors import SpecError
from elasticdl.master.runtime import codec
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec.ids import WorkerId


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (pb.WorkerMessage(data_plan=pb.DataPlan(progress=b"\xfb")), "data_plan.progress"),
        (pb.WorkerMessage(loss_report=pb.LossReport(step=[1, 2], loss=[0.5])), "loss_report"),
    ],
)
def test_a_malformed_message_is_an_error_that_names_the_field(message: pb.WorkerMessage, error: str) -> None:
    with pytest.raises(SpecError, match=error):
        codec.event_from_worker(WorkerId("worker-0"), message)
