"""Takes leases and reports progress in the background, while the training thread computes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from itertools import count
from typing import Protocol

from elasticdl.errors import ElasticDLError
from elasticdl.model.reduction import MetricPart
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.vital import VitalThread


class LeaseService(Protocol):
    def exchange(self, request: pb.ExchangeRequest) -> pb.ExchangeReply: ...


class LeaseClient:
    """Exchanges leases and reports with the master in a thread of its own, once `start` was called."""

    def __init__(self, master: LeaseService, worker: str, retry_s: float, pace_s: float = 0.05) -> None:
        """`retry_s`: how soon to ask again if others hold all that is left. `pace_s`: between two reports."""
        self._master = master
        self._worker = worker
        self._retry_s = retry_s
        self._pace_s = pace_s
        self._is_hurried = False  # a thread waits until everything is reported
        self._requests = count(1)
        self._changed = threading.Condition()
        self._reports: dict[int, pb.LeaseReport] = {}
        self._leases: deque[pb.Lease] = deque()
        self._wants = False
        self._is_reporting = False  # reports are on their way
        self._is_closed = False
        self._is_woken = False
        self._failure: ElasticDLError | None = None
        self.is_drained = False

    def start(self) -> None:
        VitalThread(self._run, name="elasticdl-leases").start()

    def request_lease(self) -> None:
        """A lease will be needed soon."""
        with self._changed:
            self._wants = self._wants or not self._leases
            self._changed.notify_all()

    def wait_for_lease(self, timeout_s: float) -> pb.Lease | None:
        """The next lease; None: none came in time or before `wake`, or `is_drained`. Raises an error of the thread."""
        self.request_lease()
        with self._changed:
            self._changed.wait_for(
                lambda: self._leases or self.is_drained or self._is_woken or self._failure, timeout=timeout_s
            )
            self._is_woken = False
            self._raise_failure()
            return self._leases.popleft() if self._leases else None

    def wake(self) -> None:
        """End the wait for a lease: there is something else to do."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def report(
        self, lease: pb.Lease, done: int, parts: Mapping[str, MetricPart] | None = None, failure: str = ""
    ) -> None:
        """Report that `done` records of the lease are done; `parts` are the metrics of those since the last report."""
        size = lease.stop - lease.start
        combined = pb.LeaseReport(lease=lease.id, done=done, finished=done >= size and not failure, failure=failure)
        with self._changed:
            self._raise_failure()
            if (waiting := self._reports.get(lease.id)) is not None:
                for name, part in waiting.sums.items():
                    combined.sums[name].CopyFrom(part)
            for name, (values, weight) in (parts or {}).items():
                before = combined.sums[name]
                earlier = before.values or [0.0] * len(values)
                total = pb.Sum(
                    values=[a + b for a, b in zip(earlier, values, strict=True)], weight=before.weight + weight
                )
                before.CopyFrom(total)
            self._reports[lease.id] = combined
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> None:
        """Wait until the master has every report."""
        with self._changed:
            self._is_hurried = True
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._failure or not (self._reports or self._is_reporting), timeout=timeout_s
            )
            self._is_hurried = False
            self._raise_failure()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._reports or self._wants or self._is_closed)
                self._changed.wait_for(self._is_urgent, timeout=self._pace_s)
                if self._is_closed:
                    return
                reports, self._reports = list(self._reports.values()), {}
                wants, self._is_reporting = self._wants, bool(reports)
            try:
                self._exchange(reports, wants)
            except ElasticDLError as exc:
                with self._changed:
                    self._failure, self._is_reporting = exc, False
                    self._changed.notify_all()
                return

    def _is_urgent(self) -> bool:
        is_news = any(report.finished or report.failure for report in self._reports.values())
        return self._wants or self._is_closed or self._is_hurried or is_news

    def _exchange(self, reports: list[pb.LeaseReport], wants: bool) -> None:
        reply = self._master.exchange(
            pb.ExchangeRequest(
                worker=self._worker, reports=reports, max_leases=int(wants), request=next(self._requests)
            )
        )
        with self._changed:
            self._is_reporting = False
            self._leases += reply.leases
            self.is_drained = reply.drained
            if reply.leases or reply.drained:
                self._wants = False
            self._changed.notify_all()
            if self._wants:  # others hold all that is left, and one of them may die
                self._changed.wait_for(lambda: self._reports or self._is_closed, timeout=self._retry_s)
