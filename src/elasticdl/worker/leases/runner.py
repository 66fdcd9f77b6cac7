"""Runs leases one by one: takes shards from the master and reports each batch before the next."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count

from elasticdl.errors import ElasticDLError
from elasticdl.model.reduction import MetricPart
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.client import MasterClient

_log = logging.getLogger(__name__)

# Runs a lease: yields after each batch the position in the shard and the metric parts of that batch.
RunLease = Callable[[pb.Lease], Iterator[tuple[int, Mapping[str, MetricPart]]]]


class LeaseRunner:
    """Takes leases of one worker from the master and reports on them.

    `requests` numbers the requests of the process: it outlives the runner, because no number is used twice.
    """

    def __init__(self, master: MasterClient, worker: str, requests: count[int]) -> None:
        self._master = master
        self._worker = worker
        self._requests = requests

    def run_leases(self, run: RunLease, steps: Sequence[int], wait: Callable[[], bool]) -> None:
        """Run leases until no more will come. `wait` pauses while others hold the last ones; if it is False, end."""
        reports: list[pb.LeaseReport] = []
        while True:
            reply = self._exchange(reports, steps, want=1)
            reports = []
            for lease in reply.leases:
                reports.append(self._run_lease(run, lease))
            if reports:
                continue
            if reply.drained or not wait():
                return

    def _run_lease(self, run: RunLease, lease: pb.Lease) -> pb.LeaseReport:
        """Run a lease and report each batch; returns the last report, which is not sent yet."""
        done = lease.done  # what the master knows: a batch whose report it may not have is computed again
        try:
            for position, parts in run(lease):
                report = pb.LeaseReport(lease=lease.id, done=position - lease.start, finished=position >= lease.stop)
                for name, (values, weight) in parts.items():
                    report.sums[name].CopyFrom(pb.Sum(values=values, weight=weight))
                if report.finished:
                    return report
                self._exchange([report], (), want=0)
                done = report.done
        except ElasticDLError as exc:
            return pb.LeaseReport(lease=lease.id, done=done, failure=str(exc))
        except Exception as exc:  # the user's function failed on this shard: the master decides what follows
            _log.error("%s", traceback.format_exc())
            return pb.LeaseReport(lease=lease.id, done=done, failure=f"{type(exc).__name__}: {exc}")
        return pb.LeaseReport(lease=lease.id, done=lease.stop - lease.start, finished=True)

    def _exchange(self, reports: Sequence[pb.LeaseReport], steps: Sequence[int], want: int) -> pb.ExchangeReply:
        return self._master.exchange(
            pb.ExchangeRequest(
                worker=self._worker, reports=reports, max_leases=want, steps=steps, request=next(self._requests)
            )
        )
