"""Leases that are fetched and reported in a background thread."""

from __future__ import annotations

import threading

import pytest

from elasticdl.errors import MasterUnreachable
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.worker.leases.client import LeaseClient

SOON_S = 30.0


class Master:
    """Hands out shards of ten records, and answers only when the test allows it."""

    def __init__(self, leases: int) -> None:
        self.left = [pb.Lease(id=number, start=10 * number, stop=10 * number + 10) for number in range(1, leases + 1)]
        self.requests: list[pb.ExchangeRequest] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.failure: Exception | None = None
        self.open: set[int] = set()

    def exchange(self, request: pb.ExchangeRequest) -> pb.ExchangeReply:
        self.requests.append(request)
        assert self.may_answer.wait(SOON_S)
        if self.failure:
            raise self.failure
        self.open -= {report.lease for report in request.reports if report.finished}
        leases = [self.left.pop(0) for _ in range(min(request.max_leases, len(self.left)))]
        self.open |= {lease.id for lease in leases}
        return pb.ExchangeReply(leases=leases, drained=not self.left and not self.open)


def start_client(master: Master, retry_s: float = 0.01, pace_s: float = 0.05) -> LeaseClient:
    client = LeaseClient(master, "worker-0", retry_s, pace_s)
    client.start()
    return client


def test_every_lease_is_taken_once_and_the_end_is_reported() -> None:
    master = Master(3)
    client, taken = start_client(master), list[int]()
    while (lease := client.wait_for_lease(SOON_S)) is not None:
        taken.append(lease.id)
        client.report(lease, 5)
        client.report(lease, 10)
    client.close()

    assert taken == [1, 2, 3]
    assert client.is_drained
    assert [request.request for request in master.requests] == list(range(1, len(master.requests) + 1))


def test_reports_made_while_the_master_is_slow_go_together_with_their_sums() -> None:
    master = Master(1)
    client = start_client(master, retry_s=0.01, pace_s=0.0)
    lease = client.wait_for_lease(SOON_S)
    assert lease is not None
    master.may_answer.clear()
    client.report(lease, 2, {"loss": ([1.0], 2.0)})
    while len(master.requests) < 2:
        pass
    for done in (4, 6, 10):
        client.report(lease, done, {"loss": ([1.0], 2.0)})
    master.may_answer.set()
    client.flush(SOON_S)
    client.close()

    reports = [report for request in master.requests for report in request.reports]
    assert [report.done for report in reports] == [2, 10]
    assert [list(report.sums["loss"].values) for report in reports] == [[1.0], [3.0]]
    assert [report.sums["loss"].weight for report in reports] == [2.0, 6.0]
    assert [report.finished for report in reports] == [False, True]


def test_an_error_is_raised_when_a_lease_is_requested_or_reports_are_flushed() -> None:
    master = Master(1)
    master.failure = MasterUnreachable("gone")
    client = start_client(master, retry_s=0.01)

    with pytest.raises(MasterUnreachable):
        client.wait_for_lease(SOON_S)
    with pytest.raises(MasterUnreachable):
        client.flush(SOON_S)


def test_no_lease_is_returned_while_others_hold_the_remaining_ones() -> None:
    master = Master(1)
    master.open = {99}
    client = start_client(master, retry_s=0.01)
    lease = client.wait_for_lease(SOON_S)
    assert lease is not None
    client.report(lease, 10)

    assert client.wait_for_lease(0.05) is None and not client.is_drained
    master.open = set()
    assert client.wait_for_lease(SOON_S) is None and client.is_drained
    client.close()


def test_progress_is_batched_and_the_end_of_a_lease_is_sent_at_once() -> None:
    master = Master(1)
    client = start_client(master, retry_s=0.01, pace_s=SOON_S)
    lease = client.wait_for_lease(SOON_S)
    assert lease is not None
    before = len(master.requests)
    for done in (2, 4, 6):
        client.report(lease, done)
    client.report(lease, 10)
    assert client.wait_for_lease(SOON_S) is None and client.is_drained
    client.close()

    assert [report.done for request in master.requests[before:] for report in request.reports] == [10]


def test_a_flush_waits_for_reports_and_not_for_a_lease() -> None:
    master = Master(1)
    master.open = {99}
    client = start_client(master, retry_s=SOON_S)
    lease = client.wait_for_lease(SOON_S)
    assert lease is not None
    assert client.wait_for_lease(0.0) is None  # wanted, and others hold the rest
    client.report(lease, 10)
    client.flush(SOON_S)
    client.close()

    assert [report.done for request in master.requests for report in request.reports] == [10]


def test_a_wait_for_a_lease_can_be_ended() -> None:
    master = Master(0)
    master.open = {99}
    client = start_client(master, retry_s=SOON_S)
    threading.Timer(0.05, client.wake).start()

    assert client.wait_for_lease(SOON_S) is None and not client.is_drained
    client.close()
