"""A-online (Zhang et al., MobiHoc'20): minimises the sum of weighted completion times, by intervals that double.

The online problem becomes a series of offline problems. Intervals of 1, 2, 4, … slots follow each other. When an
interval begins, the jobs that have come and are not accepted yet are considered, and those with the greatest total
weight that can end within the interval are accepted. They are found as in OASiS, by dual prices and the cheapest
schedule of each job: a job is worth its weight if it ends within the interval, and it is accepted if that exceeds its
price. The other jobs are carried over to the next, longer interval.

Deviations:
- The reduction follows the framework it rests on (Hall et al., Garg et al.). Jobs are tried by weight per device and
  slot they need, the greatest first.
- When all jobs of an interval are gone, intervals start again with the shortest. They stop doubling at the horizon;
  longer jobs then reserve half of the horizon at a time.
- As in our OASiS, jobs without reserved workers use what is not reserved in a slot, devices of a kind are one pool, and
  a job of unknown length is assumed to have as much work left as it did.
- Kinds of workers and parameter servers are kinds of devices; a job uses one kind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

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
from elasticdl.scheduler.snapshot import JobInfo, Snapshot


@dataclass(frozen=True)
class Memory:
    reserved: Mapping[str, Reservation] = field(default_factory=dict)
    known_jobs: frozenset[str] = frozenset()  # jobs
    next_interval_slot: int = -(1 << 62)  # slot in which the next interval begins
    interval_slots: int = 0  # length of this interval


@dataclass(frozen=True)
class AOnline:
    name: str = "aonline"
    slot_s: float = 600.0
    horizon_slots: int = 64  # length of the longest interval
    work_units: int = 48  # a number with many divisors
    is_rigid: bool = False
    interval_s: float = 600.0
    decides_on_events: bool = True
    adapts_batch: bool = False
    needs_oracle: bool = False

    def decide(self, snapshot: Snapshot, memory: Memory | None) -> Decision:
        previous = memory or Memory()
        slot = math.floor(snapshot.now / self.slot_s + 1e-9)
        queue = sort_by_submission(snapshot.jobs)
        starts_over = not previous.known_jobs & snapshot.jobs_by_name.keys()
        starts_interval = starts_over or slot >= previous.next_interval_slot
        next_interval_slot, interval_slots = previous.next_interval_slot, previous.interval_slots
        if starts_interval:
            interval_slots = 1 if starts_over else min(2 * interval_slots, self.horizon_slots)
            next_interval_slot = slot + interval_slots
        calendar = ReservationCalendar(ConfigurationTable(snapshot), slot, next_interval_slot - slot, self.slot_s)
        reserved = carry_over_reservations(previous.reserved, snapshot, calendar)
        if starts_interval:
            self._accept_jobs(
                snapshot, [job for job in queue if job.name not in reserved], interval_slots, calendar, reserved
            )
        plan = AllocationPlan(allocate_slot(snapshot, queue, reserved, slot, self.slot_s))
        return Decision(plan, Memory(reserved, frozenset(snapshot.jobs_by_name), next_interval_slot, interval_slots))

    def _accept_jobs(
        self,
        snapshot: Snapshot,
        jobs: list[JobInfo],
        interval_slots: int,
        calendar: ReservationCalendar,
        reserved: dict[str, Reservation],
    ) -> None:
        """Adds to `reserved` and the calendar the jobs whose weight exceeds their price within the interval."""
        ends_at = calendar.slot_ends_at(interval_slots - 1)
        work = {job.name: self._work_to_reserve(calendar, job, interval_slots) for job in jobs}
        worker_slots = {job.name: self._worker_slots(calendar, job, work[job.name]) for job in jobs}
        bounds = PriceBounds()
        for job in jobs:
            bounds = bounds.widened_by(job.weight, job.weight, job.devices, worker_slots[job.name])

        def density(job: JobInfo) -> tuple[float, float, str]:
            return -job.weight / (worker_slots[job.name] * job.devices), job.submitted_at, job.name

        for job in sorted(jobs, key=density):

            def utility(ends: float, weight: float = job.weight) -> float:
                return weight if ends <= ends_at else 0.0

            reservation = best_reservation(
                calendar, job, snapshot.now, work[job.name], utility, bounds, self.work_units
            )
            if reservation is not None:
                reserved[job.name] = reservation
                calendar.add(reservation)

    def _work_to_reserve(self, calendar: ReservationCalendar, job: JobInfo, interval_slots: int) -> float:
        work_left = calendar.configurations.speeds.work_left(job)
        if interval_slots == self.horizon_slots:
            work_left = min(
                work_left,
                calendar.configurations.speeds.rate(job, max(job.max_workers, 1)) * interval_slots * self.slot_s / 2,
            )
        return max(work_left, 1e-9)

    def _worker_slots(self, calendar: ReservationCalendar, job: JobInfo, work: float) -> float:
        """Returns how many slots of one worker the job needs at its minimum size."""
        min_workers = max(job.min_workers, 1)
        return max(
            work / max(calendar.configurations.speeds.rate(job, min_workers), 1e-9) / self.slot_s * min_workers, 1e-9
        )


POLICY = AOnline
