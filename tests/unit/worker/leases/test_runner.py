"""The reports of a worker with leases: each batch counts once, even if a report is lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count

import pytest

from elasticdl.errors import MasterUnreachable
from elasticdl.model.reduction import MetricPart
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.worker.leases.runner import LeaseRunner

BATCH, SIZE = 5, 15


class OneLease:
    """A master with a single shard that loses one of the messages, and then hands the shard out again."""

    def __init__(self, fails_at: int, error: Exception) -> None:
        self.heard: list[pb.LeaseReport] = []
        self._done = 0  # as the master knows it
        self._counted = 0.0
        self._lease = 0
        self._is_finished = False
        self._messages = count()
        self._fails_at, self._error = fails_at, error

    @property
    def counted(self) -> float:
        """Records whose metrics were added up."""
        return self._counted

    def exchange(self, request: pb.ExchangeRequest) -> pb.ExchangeReply:
        if next(self._messages) == self._fails_at:
            raise self._error
        for report in request.reports:
            self._done = max(self._done, report.done)
            self._counted += report.sums["count"].weight if "count" in report.sums else 0.0
            self._is_finished = report.finished
        if self._is_finished or not request.max_leases:
            return pb.ExchangeReply(drained=self._is_finished)
        self._lease += 1
        return pb.ExchangeReply(leases=[pb.Lease(id=self._lease, start=0, stop=SIZE, done=self._done)])


def run(lease: pb.Lease) -> Iterator[tuple[int, Mapping[str, MetricPart]]]:
    for position in range(lease.start + lease.done, lease.stop, BATCH):
        yield position + BATCH, {"count": ([1.0], float(BATCH))}


@pytest.mark.parametrize("error", [MasterUnreachable("127.0.0.1:1"), OSError(5, "Input/output error")])
@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_batch_whose_report_is_lost_is_computed_again_and_counts_once(fails_at: int, error: Exception) -> None:
    master = OneLease(fails_at, error)

    LeaseRunner(master, "worker-0", count(1)).run_leases(run, (), lambda: False)  # type: ignore[arg-type]

    assert master.counted == SIZE
