"""A calendar in which jobs reserve workers slot by slot, at prices that rise with what is reserved (OASiS).

In a slot a device costs L·(U/L)**(reserved/capacity): almost nothing while all devices are free, and more than any job
is worth when all are reserved. U is the greatest value of a job per device of a worker. L is the smallest value of a
job per device and slot it needs, over four times the part of the calendar that the smallest job needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from elasticdl.scheduler.interface import Floats
from elasticdl.scheduler.models.estimates import candidate_sizes
from elasticdl.scheduler.placement.assignment import assign_or_repack, grow_round_robin, place_at_most, sort_by_change
from elasticdl.scheduler.placement.configurations import ConfigurationTable, DeviceConfiguration
from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.plan import Allocation
from elasticdl.scheduler.snapshot import JobInfo, Snapshot, WorkersByNode

_MAX_PRICE_RATIO = 1e6  # U / L


@dataclass(frozen=True)
class Reservation:
    """The workers of one job by slot (numbered from time 0), and the devices they take by kind."""

    kind: str | None  # None: several kinds
    workers: Mapping[int, int]
    devices: Mapping[int, Mapping[str, int]]

    @property
    def last_slot(self) -> int:
        return max(self.workers)


@dataclass(frozen=True)
class PriceBounds:
    """The range of values over all jobs seen so far, from which prices follow."""

    max_device_value: float = 0.0  # value per device of a worker, if the job ends as soon as possible
    min_device_slot_value: float = math.inf  # value per device and slot, if the job ends at the end of the calendar
    min_device_slots: float = math.inf

    def widened_by(self, soonest: float, latest: float, devices: int, slots: float) -> PriceBounds:
        needs = max(slots * devices, 1e-9)
        return PriceBounds(
            max(self.max_device_value, soonest / devices),
            min(self.min_device_slot_value, latest / needs),
            min(self.min_device_slots, needs),
        )

    def price_range(self, all_slots: float) -> tuple[float, float]:
        """Returns L and U for a calendar with this many device-slots."""
        low = self.min_device_slot_value * min(self.min_device_slots / max(all_slots, 1e-9), 1.0) / 4
        return min(max(low, self.max_device_value / _MAX_PRICE_RATIO), self.max_device_value), self.max_device_value


@dataclass
class ReservationCalendar:
    """What is reserved of each kind of device while a decision is made."""

    configurations: ConfigurationTable
    first_slot: int
    slot_count: int
    slot_s: float
    reserved: dict[str, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reserved = {kind: np.zeros(self.slot_count) for kind in self.configurations.kinds}

    @property
    def total_device_slots(self) -> float:
        return float(self.configurations.devices_by_kind.total() * self.slot_count)

    def add(self, reservation: Reservation) -> None:
        for slot, devices in reservation.devices.items():
            if self.first_slot <= slot < self.first_slot + self.slot_count:
                for kind in devices.keys() & self.reserved.keys():
                    self.reserved[kind][slot - self.first_slot] += devices[kind]

    def slot_costs(self, config: DeviceConfiguration, low: float, high: float) -> Floats:
        """Returns the cost of a configuration in each slot; infinite where it does not fit any more."""
        total = np.zeros(self.slot_count)
        for kind, devices in config.devices.items():
            capacity = max(self.configurations.devices_by_kind[kind], 1)
            total += devices * low * (high / low) ** np.minimum(self.reserved[kind] / capacity, 1.0)
            total[self.reserved[kind] + devices > capacity] = np.inf
        return total

    def slot_ends_at(self, slot: int) -> float:
        """Returns the end of a slot, counted from the first one."""
        return (self.first_slot + slot + 1) * self.slot_s


def candidate_configurations(table: ConfigurationTable, job: JobInfo) -> list[list[DeviceConfiguration]]:
    """Returns a few sizes on each kind the job can run on, or over several kinds if it must."""
    groups = [
        [DeviceConfiguration(size, kind, {kind: size * job.devices}) for size in candidate_sizes(job, max_workers)]
        for kind in table.speeds.usable_kinds(job)
        if not job.constraints and (max_workers := table.devices_by_kind[kind] // job.devices) > 0
    ]
    return [group for group in groups if group] or [group for group in [table.configurations_of(job)] if group]


def best_reservation(
    calendar: ReservationCalendar,
    job: JobInfo,
    now: float,
    total_work: float,
    utility: Callable[[float], float],
    bounds: PriceBounds,
    work_units: int,
) -> Reservation | None:
    """Returns the reservation with the greatest utility of its end minus its price; None: none is worth its price.

    The work is divided into `work_units`; what a slot does is rounded down to whole units.
    """
    low, high = bounds.price_range(calendar.total_device_slots)
    if low <= 0:
        return None
    seconds = np.full(calendar.slot_count, calendar.slot_s)
    seconds[0] = max(calendar.slot_ends_at(0) - now, 0.0)
    gains = np.array([utility(calendar.slot_ends_at(slot)) for slot in range(calendar.slot_count)])
    best: tuple[float, Reservation] | None = None
    for group in candidate_configurations(calendar.configurations, job):
        rates = np.array([calendar.configurations.speeds.rate(job, config.workers, config.kind) for config in group])
        units_done = np.floor(np.outer(seconds, rates) / max(total_work / work_units, 1e-12) + 1e-9)
        costs = np.stack([calendar.slot_costs(config, low, high) for config in group], axis=1)
        totals, choices = min_costs_by_slot(costs, np.minimum(units_done, work_units).astype(int), work_units)
        payoff = gains - totals
        end = int(payoff.argmax())
        if payoff[end] > 0 and (best is None or payoff[end] > best[0]):
            best = float(payoff[end]), _make_reservation(calendar.first_slot, group, trace_choices(choices, end))
    return best[1] if best else None


def min_costs_by_slot(
    costs: Floats, units_done: np.ndarray, work_units: int
) -> tuple[Floats, list[tuple[np.ndarray, np.ndarray]]]:
    """Returns the smallest cost of all units by the end of each slot, and the choices for `trace_choices`.

    `costs` and `units_done` are indexed by slot and option; doing nothing in a slot is free. least[r], over the slots
    so far, is the minimum over options of their cost plus least[r - done] of the slots before.
    """
    least = np.full(work_units + 1, np.inf)
    least[0] = 0.0
    totals, choices = [], []
    for slot in range(len(costs)):
        price = np.append(0.0, costs[slot])
        remaining_units = np.maximum(np.arange(work_units + 1)[None, :] - np.append(0, units_done[slot])[:, None], 0)
        values = price[:, None] + least[remaining_units]
        choice = values.argmin(axis=0)
        every = np.arange(work_units + 1)
        least = values[choice, every]
        choices.append((choice, remaining_units[choice, every]))
        totals.append(least[work_units])
    return np.array(totals), choices


def trace_choices(choices: Sequence[tuple[np.ndarray, np.ndarray]], end: int) -> dict[int, int]:
    """Returns the option chosen in each slot up to `end`, without slots that have none."""
    option_by_slot, units_left = {}, len(choices[0][0]) - 1
    for slot in range(end, -1, -1):
        choice, remaining_units = choices[slot]
        if choice[units_left]:
            option_by_slot[slot] = int(choice[units_left]) - 1
        units_left = int(remaining_units[units_left])
    return option_by_slot


def _make_reservation(
    first_slot: int, group: Sequence[DeviceConfiguration], option_by_slot: Mapping[int, int]
) -> Reservation:
    return Reservation(
        group[0].kind,
        {first_slot + slot: group[option].workers for slot, option in option_by_slot.items()},
        {first_slot + slot: group[option].devices for slot, option in option_by_slot.items()},
    )


def carry_over_reservations(
    previous: Mapping[str, Reservation], snapshot: Snapshot, calendar: ReservationCalendar
) -> dict[str, Reservation]:
    """Enters into the calendar the reservations of jobs that still exist and whose last slot is not over."""
    reservations = {
        name: reservation
        for name, reservation in previous.items()
        if name in snapshot.jobs_by_name and reservation.last_slot >= calendar.first_slot
    }
    for reservation in reservations.values():
        calendar.add(reservation)
    return reservations


def allocate_slot(
    snapshot: Snapshot, queue: Sequence[JobInfo], reserved: Mapping[str, Reservation], slot: int, slot_s: float
) -> dict[str, Allocation]:
    """Gives each job what it reserved for this slot; the others get the remaining devices in turn."""
    reserved_now = {job.name: _reserved_workers(job, reserved, slot) for job in queue}
    free, tentative = FreeResources(snapshot.nodes), dict[str, WorkersByNode]()
    for job, count in sort_by_change(
        (replace(reserved_job, workers={}), count) for reserved_job, count in reserved_now.values() if count
    ):
        tentative[job.name] = place_at_most(free, job, count)
        free.allocate(job, tentative[job.name])
    # Other resources are not reserved, so a reserved job may not fit on its kind: it is placed like one without.
    reserved_now |= {job.name: (job, 0) for job in queue if not tentative.get(job.name)}
    unreserved = [job for job in queue if not reserved_now[job.name][1]]
    grow_round_robin(free, [replace(job, workers={}) for job in unreserved], tentative)
    counts = {name: sum(workers.values()) for name, workers in tentative.items()}
    assigned = assign_or_repack(
        snapshot.nodes, [(reserved_now[job.name][0], counts.get(job.name, 0)) for job in queue], tentative
    )
    return {
        job.name: _allocation(
            job, assigned[job.name], reserved.get(job.name), bool(reserved_now[job.name][1]), snapshot.now, slot_s
        )
        for job in queue
    }


def _reserved_workers(job: JobInfo, reserved: Mapping[str, Reservation], slot: int) -> tuple[JobInfo, int]:
    """Returns the job restricted to the kind it reserved, and its number of workers in this slot."""
    reservation = reserved.get(job.name)
    count = job.max_size_up_to(reservation.workers.get(slot, 0)) if reservation else 0
    if not reservation or not count or reservation.kind is None:
        return job, count
    return replace(job, kinds=(reservation.kind,)), count


def _allocation(
    job: JobInfo, workers: WorkersByNode, reservation: Reservation | None, is_reserved: bool, now: float, slot_s: float
) -> Allocation:
    count = sum(workers.values())
    if workers and is_reserved:
        assert reservation is not None
        return Allocation(
            workers,
            f"{count} workers, as reserved until {max((reservation.last_slot + 1) * slot_s - now, 0):.0f} s from now",
        )
    if workers:
        return Allocation(workers, f"{count} workers that are not reserved in this slot")
    if reservation is None:
        return Allocation(
            {}, "waits: its value is below the price of its devices; it is considered again in the next slot"
        )
    starts = min((slot for slot in reservation.workers if slot * slot_s > now), default=None)
    wait = None if starts is None else starts * slot_s - now
    return Allocation({}, "waits for its reserved slot", expected_wait_s=wait)
