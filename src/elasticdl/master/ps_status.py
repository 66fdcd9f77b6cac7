"""The ps of a job as people see them. Pure."""

from __future__ import annotations

from collections import Counter

from elasticdl.master.fleet import Ps
from elasticdl.master.job import Job
from elasticdl.master.ps_events import PsBeatReceived
from elasticdl.rpc import elasticdl_pb2 as pb

# Ps that are gone are told of for so long; the event log has them for ever.
_SHOWN_GONE = 20
# A rate is of the past once nothing was heard for so long.
_RATE_VALID_S = 5.0


def of(job: Job, now: float) -> list[pb.PsStatus]:
    fleet = job.ledger.fleet
    slots = Counter(fleet.owner)
    gone = [ps.id for ps in fleet.ps.values() if not ps.is_here]
    hidden = set(gone[:-_SHOWN_GONE])
    return [_one(job, ps, slots[ps.id], now) for ps in fleet.ps.values() if ps.id not in hidden]


def _one(job: Job, ps: Ps, slots: int, now: float) -> pb.PsStatus:
    told = pb.PsStatus(
        id=ps.id,
        pid=ps.pid,
        state=ps.state.value,
        since=ps.since,
        host=ps.host,
        address=ps.address,
        reason=ps.reason,
        slots=slots,
        replica=job.ledger.fleet.replicas.get(ps.id, ""),
    )
    seen = job.seen.ps.get(ps.id)
    if seen is not None and seen.beat is not None and ps.is_here:
        told.beat.CopyFrom(_beat(seen.beat))
        told.requests_per_s = seen.requests_per_s if now - seen.at < _RATE_VALID_S else 0.0
    return told


def _beat(beat: PsBeatReceived) -> pb.PsBeat:
    values = beat._asdict()
    del values["ps"]
    return pb.PsBeat(**values)


def mean_staleness(histogram: tuple[int, ...]) -> float:
    """Of all pushes so far, each bucket (0, 1, 2-3, 4-7 …) counted as its least."""
    pushes = sum(histogram)
    total = sum(count * (1 << place - 1) for place, count in enumerate(histogram) if place)
    return total / pushes if pushes else 0.0
