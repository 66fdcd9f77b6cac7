"""All jobs of this machine that are not over: events in, snapshots out, plans in, actions out. Pure.

What the last plan gives a job is what policies are shown, as in the simulator. What is carried out of it is held
against the devices that are really free: whoever gets more waits until whoever gets less has let go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from elasticdl.scheduler.accounts import events as ev
from elasticdl.scheduler.accounts.entry import FitRates, JobEntry, fit_no_rates
from elasticdl.scheduler.accounts.report import ScheduledJobState, ScheduledJobStatus
from elasticdl.scheduler.plan import AllocationPlan
from elasticdl.scheduler.snapshot import NodeInfo, Snapshot

MAX_LOSSES = 3  # in a row, without progress between them
RETRY_S = 1.0  # after an action that failed

_ACTIVE_PHASES = ("", "pending", "starting", "running")  # phases in which a master takes wishes


class JobTable:
    """A `Cluster` for the loop. Every job in it is not over."""

    def __init__(self, nodes: tuple[NodeInfo, ...], fit_rates: FitRates = fit_no_rates) -> None:
        self.nodes = nodes
        self.entries: dict[str, JobEntry] = {}
        self._fit_rates = fit_rates

    @property
    def total_devices(self) -> int:
        return sum(node.devices for node in self.nodes)

    # ---- events

    def handle(self, event: ev.JobEvent, now: float) -> bool:
        """Take note of it. True: the policy wants to know."""
        match event:
            case ev.JobSubmitted(submission):
                return self._add_entry(JobEntry(submission, allocated_at=now, charged_until=now))
            case ev.JobRecovered():
                return self._recover_job(event, now)
        entry = self.entries.get(event.name)
        if entry is None:
            return False
        entry.charge_until(now)
        match event:
            case ev.JobStopRequested():
                is_first_request, entry.is_stop_requested = not entry.is_stop_requested, True
                return is_first_request
            case ev.JobStatusReported():
                _apply_status(entry, event)
            case ev.ActionSucceeded(_, finished_at):
                entry.is_busy, entry.last_action_at = False, finished_at
                if entry.is_stop_requested or entry.state is ScheduledJobState.SUSPENDING:
                    entry.phase = "stopping"
            case ev.ActionFailed(_, finished_at):
                entry.is_busy, entry.last_action_at, entry.retry_at = False, finished_at, now + RETRY_S
            case ev.JobExited(_, phase):
                return self._handle_exit(entry, phase)
            case ev.JobLost(_, reason):
                return self._handle_loss(entry, reason, now)
        return False

    # ---- the cluster of the loop

    def snapshot(self, now: float) -> Snapshot:
        self._charge_all_until(now)
        entries = [
            entry for entry in self.entries.values() if not entry.is_stop_requested and not entry.rejection_reason
        ]
        return Snapshot(now, self.nodes, tuple(entry.to_job_info(self._fit_rates) for entry in entries))

    def apply(self, plan: AllocationPlan, now: float) -> None:
        for name, allocation in plan.allocations.items():
            entry = self.entries[name]
            entry.charge_until(now)
            entry.apply_allocation(allocation, now)
            # Who has run already does not fail for want of room: there may be more again.
            if allocation.is_rejected and entry.account.launches == 0:
                entry.rejection_reason = allocation.reason

    # ---- what is to be done

    def due_actions(self, now: float) -> list[ev.JobAction]:
        """What can be done now towards the plan. Whoever it is about is busy until Done, Failed or the end."""
        actions: list[ev.JobAction] = []
        ready = sorted(
            (entry for entry in self.entries.values() if entry.can_act(now)), key=lambda entry: entry.queue_order
        )
        for entry in ready:
            actions += _release_actions(entry)
        free = self.total_devices - sum(entry.held_devices for entry in self.entries.values())
        for entry in ready:
            needed = None if entry.is_busy else _devices_needed(entry)
            if needed is not None and needed <= free:
                free -= needed
                actions.append(_start_or_grow(entry, now))
            elif not entry.is_busy and entry.state is ScheduledJobState.RUNNING and entry.batch_scale_to_set:
                actions.append(_resize(entry, entry.desired_workers))
        return actions

    def job_statuses(self, now: float) -> Mapping[str, ScheduledJobStatus]:
        self._charge_all_until(now)
        waits = self._estimate_waits_by_job()
        return {
            name: ScheduledJobStatus(
                state=entry.state,
                allocated=dict(entry.allocated),
                max_workers=entry.submission.max_workers,
                reason="stops: its owner asked for it" if entry.is_stop_requested else entry.reason,
                expected_wait_s=waits[name] if entry.expected_wait_s is None else entry.expected_wait_s,
                allocated_at=entry.allocated_at,
                submitted_at=entry.submission.submitted_at,
                priority=entry.submission.priority,
                queue=entry.submission.queue,
                devices=entry.submission.devices,
                batch_scale=entry.planned_batch_scale,
                account=entry.account,
            )
            for name, entry in self.entries.items()
        }

    # ---- inside

    def _charge_all_until(self, now: float) -> None:
        for entry in self.entries.values():
            entry.charge_until(now)

    def _add_entry(self, entry: JobEntry) -> bool:
        is_new = entry.name not in self.entries
        if is_new:
            self.entries[entry.name] = entry
        return is_new

    def _recover_job(self, event: ev.JobRecovered, now: float) -> bool:
        account = event.account
        entry = JobEntry(event.submission, event.state, allocated_at=now, account=account, charged_until=now)
        entry.reason = "as the last scheduler left it"
        entry.progress = ev.JobProgress(account.step, account.total_steps, work_done=float(account.step))
        # A node that is declared no more has nothing to give.
        entry.allocated = {node.name: event.allocated[node.name] for node in self.nodes if node.name in event.allocated}
        # Until its master says more, nobody may have what it perhaps has.
        entry.desired_workers, entry.live_workers = entry.worker_count, account.max_workers
        return self._add_entry(entry)

    def _handle_exit(self, entry: JobEntry, phase: str) -> bool:
        """A stop that we asked for, and nobody else, is no end."""
        if phase == "stopped" and entry.state is ScheduledJobState.SUSPENDING and not entry.is_stop_requested:
            _reset_to_waiting(entry)
            return False
        del self.entries[entry.name]
        # Who was rejected or unwanted had left the snapshots before.
        return not (entry.rejection_reason or entry.is_stop_requested)

    def _handle_loss(self, entry: JobEntry, reason: str, now: float) -> bool:
        _reset_to_waiting(entry)
        losses = entry.account.losses + 1
        entry.account = replace(entry.account, losses=losses)
        entry.allocated, entry.allocated_at = {}, now
        entry.reason = f"{reason}; goes on from its newest checkpoint"
        if losses >= MAX_LOSSES:
            entry.rejection_reason = f"{reason}, {losses} times without a step between; see its logs"
        return True

    def _estimate_waits_by_job(self) -> Mapping[str, float | None]:
        def devices(entry: JobEntry) -> int:
            return entry.worker_count * entry.submission.devices

        entries = sorted(self.entries.values(), key=lambda entry: entry.queue_order)
        running = [
            RunningJob(entry.name, devices(entry), entry.progress.remaining_s) for entry in entries if entry.allocated
        ]
        requests = [
            WaitingJob(entry.name, entry.submission.min_workers * entry.submission.devices) for entry in entries
        ]
        waiting = [request for entry, request in zip(entries, requests, strict=True) if not entry.allocated]
        growing = [
            WaitingJob(entry.name, entry.submission.devices)
            for entry in entries
            if entry.allocated and entry.worker_count < entry.submission.max_workers
        ]
        waits = estimate_waits(self.total_devices - sum(job.devices for job in running), running, [*waiting, *growing])
        return {entry.name: waits.get(entry.name) for entry in entries}


def _apply_status(entry: JobEntry, event: ev.JobStatusReported) -> None:
    # One that starts up does not know yet how far it was before.
    if event.phase not in ("pending", "starting"):
        losses = 0 if event.progress.step > entry.progress.step else entry.account.losses
        entry.progress = event.progress.merged_with(entry.progress)
        step, total_steps = entry.progress.step, entry.progress.total_steps
        entry.account = replace(entry.account, step=step, total_steps=total_steps, losses=losses)
    # What was told before we last did something about it may be no longer so.
    if event.reported_at > entry.last_action_at and not entry.is_busy:
        entry.phase, entry.desired_workers, entry.live_workers = event.phase, event.desired_workers, event.live_workers
        entry.batch_scale = event.progress.batch_scale


def _reset_to_waiting(entry: JobEntry) -> None:
    """What we may have begun about it meanwhile is still to be heard of."""
    entry.state, entry.phase = ScheduledJobState.WAITING, ""
    entry.desired_workers = entry.live_workers = entry.batch_scale = 0


def _release_actions(entry: JobEntry) -> Iterator[ev.JobAction]:
    """What gives devices back, or ends a job: at once."""
    is_running = entry.state is ScheduledJobState.RUNNING
    if entry.state is ScheduledJobState.WAITING:
        if entry.rejection_reason or entry.is_stop_requested:
            entry.is_busy = True
            phase_and_reason = (
                ("failed", entry.rejection_reason)
                if entry.rejection_reason
                else ("stopped", "taken out of the queue by its owner")
            )
            yield ev.CloseJob(entry.name, *phase_and_reason)
    elif entry.phase not in _ACTIVE_PHASES:
        return
    elif entry.is_stop_requested:
        entry.is_busy = True
        yield ev.StopJob(entry.name)
    elif not entry.allocated or not is_running:
        entry.is_busy, entry.state = True, ScheduledJobState.SUSPENDING
        yield ev.SuspendJob(entry.name, entry.reason)
    elif entry.worker_count < entry.desired_workers:
        # Its devices are free once its workers are gone, not before.
        entry.live_workers = max(entry.live_workers, entry.desired_workers)
        yield _resize(entry, entry.worker_count)


def _devices_needed(entry: JobEntry) -> int | None:
    """Devices that its start or growth takes beyond those it has; None: neither is due."""
    is_start = entry.state is ScheduledJobState.WAITING and entry.allocated and not entry.is_stop_requested
    is_growth = (
        entry.state is ScheduledJobState.RUNNING
        and entry.phase in _ACTIVE_PHASES
        and entry.worker_count > entry.desired_workers
    )
    return max(entry.worker_count * entry.submission.devices - entry.held_devices, 0) if is_start or is_growth else None


def _start_or_grow(entry: JobEntry, now: float) -> ev.JobAction:
    """Start or grow it."""
    resumes = entry.was_launched
    if entry.state is not ScheduledJobState.WAITING:
        return _resize(entry, entry.worker_count)
    entry.is_busy, entry.desired_workers = True, entry.worker_count
    entry.state, entry.phase, entry.live_workers = ScheduledJobState.RUNNING, "", entry.worker_count
    account = entry.account
    launched_at = now if account.launched_at is None else account.launched_at
    entry.account = replace(account, launches=account.launches + 1, launched_at=launched_at)
    return ev.StartJob(entry.name, entry.worker_count, resumes)


def _resize(entry: JobEntry, workers: int) -> ev.JobAction:
    """With the batch of the plan, where that is another."""
    scale = entry.batch_scale_to_set
    entry.is_busy, entry.desired_workers, entry.batch_scale = True, workers, scale or entry.batch_scale
    return ev.ResizeJob(entry.name, workers, scale)


@dataclass(frozen=True, slots=True)
class RunningJob:
    name: str
    devices: int
    remaining_s: float | None  # None: nobody knows


@dataclass(frozen=True, slots=True)
class WaitingJob:
    name: str
    devices: int  # that it needs to begin, or to grow


def estimate_waits(free: int, running: Sequence[RunningJob], waiting: Sequence[WaitingJob]) -> dict[str, float | None]:
    """Seconds until each has its devices, if those ahead of it take theirs and keep them. None: nobody can say.

    One that runs and waits for more does not get it from its own end. An estimate: speeds change with the number of
    workers, and jobs ahead may end, too.
    """
    running_ends = sorted((job.remaining_s, job.devices, job.name) for job in running if job.remaining_s is not None)
    waits: dict[str, float | None] = {}
    freed_after_s = 0.0
    for job in waiting:
        is_over = False
        while free < job.devices and running_ends and not is_over:
            freed_after_s, devices, name = running_ends.pop(0)
            free += devices
            is_over = name == job.name
        has_room = free >= job.devices and not is_over
        waits[job.name] = freed_after_s if has_room else None
        free -= job.devices if has_room else 0
    return waits
