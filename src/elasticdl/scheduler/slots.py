"""What reservations come to in one slot: workers for those whose slot it is, and what is left for all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from elasticdl.scheduler.arrange import arrange, by_change, go_round
from elasticdl.scheduler.plan import Allocation
from elasticdl.scheduler.reservations import Calendar, Reservation
from elasticdl.scheduler.room import Room
from elasticdl.scheduler.settling import fit
from elasticdl.scheduler.snapshot import Job, Snapshot, Workers


def carried(past: Mapping[str, Reservation], snapshot: Snapshot, calendar: Calendar) -> dict[str, Reservation]:
    """Those of jobs that are still there and whose last slot is not over, entered into the calendar."""
    kept = {name: one for name, one in past.items() if name in snapshot.by_name and one.last >= calendar.first}
    for one in kept.values():
        calendar.add(one)
    return kept


def answers(
    snapshot: Snapshot, queue: Sequence[Job], reserved: Mapping[str, Reservation], slot: int, slot_s: float
) -> dict[str, Allocation]:
    """Who has reserved this slot gets that; what is left goes round to the others, in the order of `queue`."""
    due = {job.name: _due(job, reserved, slot) for job in queue}
    room, scratch = Room(snapshot.nodes), dict[str, Workers]()
    for job, count in by_change((replace(one, workers={}), count) for one, count in due.values() if count):
        scratch[job.name] = fit(room, job, count)
        room.take(job, scratch[job.name])
    # Other resources than devices are not reserved: who finds no place on its kind is everybody's guest.
    due |= {job.name: (job, 0) for job in queue if not scratch.get(job.name)}
    guests = [job for job in queue if not due[job.name][1]]
    go_round(room, [replace(job, workers={}) for job in guests], scratch)
    counts = {name: sum(workers.values()) for name, workers in scratch.items()}
    given = arrange(snapshot.nodes, [(due[job.name][0], counts.get(job.name, 0)) for job in queue], scratch)
    return {
        job.name: _answer(job, given[job.name], reserved.get(job.name), bool(due[job.name][1]), snapshot.now, slot_s)
        for job in queue
    }


def _due(job: Job, reserved: Mapping[str, Reservation], slot: int) -> tuple[Job, int]:
    """As it was reserved: on one kind, if there was one."""
    one = reserved.get(job.name)
    count = job.largest(one.workers.get(slot, 0)) if one else 0
    if not one or not count or one.kind is None:
        return job, count
    return replace(job, kinds=(one.kind,)), count


def _answer(job: Job, workers: Workers, one: Reservation | None, is_due: bool, now: float, slot_s: float) -> Allocation:
    count = sum(workers.values())
    if workers and is_due:
        assert one is not None
        return Allocation(
            workers, f"{count} workers, as reserved until {max((one.last + 1) * slot_s - now, 0):.0f} s from now"
        )
    if workers:
        return Allocation(workers, f"{count} workers that nobody reserved for this slot")
    if one is None:
        return Allocation({}, "waits: it is worth less than its devices cost now; it is asked again next slot")
    starts = min((slot for slot in one.workers if slot * slot_s > now), default=None)
    wait = None if starts is None else starts * slot_s - now
    return Allocation({}, "waits for the slot that it reserved", expected_wait_s=wait)
