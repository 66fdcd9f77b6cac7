"""OASiS (Bao et al., INFOCOM'18): accepts a job with its complete schedule if its utility exceeds the cost.

Time is divided into slots. When a job comes, dynamic programming finds, for each slot in which it could end, the
cheapest workers slot by slot, at prices that rise with what is reserved (`placement/reservations.py`). The end with the
greatest utility minus cost is chosen if that is positive, and its slots are reserved. Reservations never change.

Deviations:
- A job that is rejected is considered again in every slot, and until then it uses what is not reserved, so that no job
  starves. So does an accepted job in slots in which it has no workers.
- U and L are those of the jobs seen so far; L is at least a millionth of U.
- The devices of a kind are one pool with one price; nodes are chosen when the slot comes. A job uses one kind, and only
  a few sizes.
- Work is what the job's rate model says, in `work_units` parts instead of chunks and epochs. Parameter servers are the
  job's own business.
- A job of unknown length is assumed to have as much work left as it did, and reserves again if that was wrong. Jobs
  longer than half the horizon reserve that much at a time.
- A job without a utility function has the value of its weight, and half of it at 4 times its shortest duration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from elasticdl.scheduler.interface import Decision
from elasticdl.scheduler.placement.assignment import sort_by_submission
from elasticdl.scheduler.placement.configurations import ConfigurationTable
from elasticdl.scheduler.placement.reservations import (
    PriceBounds,
    Reservation,
    ReservationCalendar,
    allocate_slot,
    best_reservation,
    carry_over_reservations,
)
from elasticdl.scheduler.plan import AllocationPlan
from elasticdl.scheduler.snapshot import JobInfo, Snapshot, UtilityFunction

"""The utility of a job that ends at this time."""


@dataclass(frozen=True)
class Memory:
    reserved: Mapping[str, Reservation] = field(default_factory=dict)
    rejected_in_slot: Mapping[str, int] = field(default_factory=dict)  # the slot in which each job was rejected
    bounds: PriceBounds = field(default_factory=PriceBounds)


@dataclass(frozen=True)
class Oasis:
    name: str = "oasis"
    slot_s: float = 1200.0
    horizon_slots: int = 96  # slots
    work_units: int = 48  # a number with many divisors
    is_rigid: bool = False
    interval_s: float = 1200.0
    decides_on_events: bool = True
    adapts_batch: bool = False
    needs_oracle: bool = False

    def decide(self, snapshot: Snapshot, memory: Memory | None) -> Decision:
        previous = memory or Memory()
        slot = math.floor(snapshot.now / self.slot_s + 1e-9)
        queue = sort_by_submission(snapshot.jobs)
        calendar = ReservationCalendar(ConfigurationTable(snapshot), slot, self.horizon_slots, self.slot_s)
        reserved = carry_over_reservations(previous.reserved, snapshot, calendar)
        rejected = {
            name: rejected_slot
            for name, rejected_slot in previous.rejected_in_slot.items()
            if rejected_slot == slot and name in snapshot.jobs_by_name
        }
        bounds = previous.bounds
        for job in queue:
            if job.name in reserved or job.name in rejected:
                continue
            work = self._work_to_reserve(calendar, job)
            utility = partial(_utility_at, job, utility_or_default(job, self._soonest_s(calendar, job, work)))
            bounds = self._widen_bounds(calendar, job, work, utility, bounds)
            reservation = best_reservation(calendar, job, snapshot.now, work, utility, bounds, self.work_units)
            if reservation is None:
                rejected[job.name] = slot
            else:
                reserved[job.name] = reservation
                calendar.add(reservation)
        plan = AllocationPlan(allocate_slot(snapshot, queue, reserved, slot, self.slot_s))
        return Decision(plan, Memory(reserved, rejected, bounds))

    def _work_to_reserve(self, calendar: ReservationCalendar, job: JobInfo) -> float:
        speeds = calendar.configurations.speeds
        max_work = speeds.rate(job, max(job.max_workers, 1)) * self.horizon_slots * self.slot_s / 2
        return max(min(speeds.work_left(job), max_work), 1e-9)

    def _soonest_s(self, calendar: ReservationCalendar, job: JobInfo, work: float) -> float:
        return work / max(calendar.configurations.speeds.rate(job, max(job.max_workers, 1)), 1e-9)

    def _widen_bounds(
        self,
        calendar: ReservationCalendar,
        job: JobInfo,
        work: float,
        utility: Callable[[float], float],
        bounds: PriceBounds,
    ) -> PriceBounds:
        soonest_end = calendar.first_slot * self.slot_s + self._soonest_s(calendar, job, work)
        min_workers = max(job.min_workers, 1)
        worker_slots = (
            work / max(calendar.configurations.speeds.rate(job, min_workers), 1e-9) / self.slot_s * min_workers
        )
        return bounds.widened_by(
            utility(soonest_end), utility(calendar.slot_ends_at(self.horizon_slots - 1)), job.devices, worker_slots
        )


def utility_or_default(job: JobInfo, soonest_s: float) -> UtilityFunction:
    return job.utility or UtilityFunction(2 * job.weight, 1.0 / max(soonest_s, 1.0), 4 * max(soonest_s, 1.0))


def _utility_at(job: JobInfo, utility: UtilityFunction, ends_at: float) -> float:
    exponent = utility.urgency * (max(ends_at - job.submitted_at, 0.0) - utility.target_s)
    return utility.value / (1.0 + math.exp(min(max(exponent, -500.0), 500.0)))


POLICY = Oasis
