"""OASiS (Bao et al., INFOCOM'18): a job is accepted, with all of its future, if it is worth more than that costs.

Time is in slots. When a job comes, dynamic programming finds for each slot in which it could end the cheapest workers
slot by slot up to then, at prices that rise with what is reserved (`reservations.py`). The end with the greatest
utility less cost is taken if that is above 0, and its slots are reserved; nothing is changed later.

Deviations. A job that is not accepted asks again every slot, and meanwhile uses what nobody reserved in this one: no
job starves because it was refused once. So does one that has no workers reserved in this slot. U and L are those of
the jobs seen so far, L no less than a millionth of U. Devices of a kind are one pool, with one price; nodes are chosen
when the slot comes. A job keeps to one kind, and to few sizes. Work is what the job's rates do, in `units` parts, not
chunks and epochs; parameter servers are workers' business. A job that does not say how much work it has left is
believed to have as much left as it did, and reserves again when that was wrong. Longer jobs than half the horizon
reserve that much at a time. Without a utility a job is worth its weight, half of it at 4 times its shortest time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

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


@dataclass(frozen=True)
class Memory:
    reserved: Mapping[str, Reservation] = field(default_factory=dict)
    rejected_in_slot: Mapping[str, int] = field(default_factory=dict)  # in which slot
    bounds: PriceBounds = field(default_factory=PriceBounds)


@dataclass(frozen=True)
class Oasis:
    name: str = "oasis"
    slot_s: float = 1200.0
    horizon_slots: int = 96  # slots
    work_units: int = 48  # with many divisors
    is_rigid: bool = False
    interval_s: float = 1200.0
    decides_on_events: bool = True
    adapts_batch: bool = False
    needs_oracle: bool = False

    def decide(self, snapshot: Snapshot, memory: Any) -> Decision:
        past: Memory = memory or Memory()
        slot = math.floor(snapshot.now / self.slot_s + 1e-9)
        queue = sort_by_submission(snapshot.jobs)
        calendar = ReservationCalendar(ConfigurationTable(snapshot), slot, self.horizon_slots, self.slot_s)
        reserved = carry_over_reservations(past.reserved, snapshot, calendar)
        refused = {
            name: at for name, at in past.rejected_in_slot.items() if at == slot and name in snapshot.jobs_by_name
        }
        bounds = past.bounds
        for job in queue:
            if job.name in reserved or job.name in refused:
                continue
            work = self._work(calendar, job)
            worth = partial(_utility_at, job, utility_or_default(job, self._soonest_s(calendar, job, work)))
            bounds = self._seen(calendar, job, work, worth, bounds)
            found = best_reservation(calendar, job, snapshot.now, work, worth, bounds, self.work_units)
            if found is None:
                refused[job.name] = slot
            else:
                reserved[job.name] = found
                calendar.add(found)
        plan = AllocationPlan(allocate_slot(snapshot, queue, reserved, slot, self.slot_s))
        return Decision(plan, Memory(reserved, refused, bounds))

    def _work(self, calendar: ReservationCalendar, job: JobInfo) -> float:
        speeds = calendar.configurations.speeds
        most = speeds.rate(job, max(job.max_workers, 1)) * self.horizon_slots * self.slot_s / 2
        return max(min(speeds.work_left(job), most), 1e-9)

    def _soonest_s(self, calendar: ReservationCalendar, job: JobInfo, work: float) -> float:
        return work / max(calendar.configurations.speeds.rate(job, max(job.max_workers, 1)), 1e-9)

    def _seen(
        self, calendar: ReservationCalendar, job: JobInfo, work: float, worth: Any, bounds: PriceBounds
    ) -> PriceBounds:
        soonest = calendar.first_slot * self.slot_s + self._soonest_s(calendar, job, work)
        least = max(job.min_workers, 1)
        slots = work / max(calendar.configurations.speeds.rate(job, least), 1e-9) / self.slot_s * least
        return bounds.widened_by(
            worth(soonest), worth(calendar.slot_ends_at(self.horizon_slots - 1)), job.devices, slots
        )


def utility_or_default(job: JobInfo, soonest_s: float) -> UtilityFunction:
    return job.utility or UtilityFunction(2 * job.weight, 1.0 / max(soonest_s, 1.0), 4 * max(soonest_s, 1.0))


def _utility_at(job: JobInfo, utility: UtilityFunction, ends_at: float) -> float:
    late = utility.urgency * (max(ends_at - job.submitted_at, 0.0) - utility.target_s)
    return utility.value / (1.0 + math.exp(min(max(late, -500.0), 500.0)))


POLICY = Oasis
