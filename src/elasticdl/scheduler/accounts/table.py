"""The table of all unfinished jobs: events in, snapshots out, plans in, actions out. Pure.

Policies see what the last plan allocated to each job, as in the simulator. Actions are limited to the devices that are
really free: a job that grows waits until the shrinking ones have released theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from elasticdl.scheduler.accounts import events as ev
from elasticdl.scheduler.accounts.entry import FitRates, JobEntry, fit_no_rates
from elasticdl.scheduler.accounts.report import ScheduledJobState, ScheduledJobStatus
from elasticdl.scheduler.plan import AllocationPlan
from elasticdl.scheduler.snapshot import NodeInfo, Snapshot

MAX_LOSSES = 3  # consecutive, without progress between them
RETRY_S = 1.0  # after a failed action

_ACTIVE_PHASES = ("", "pending", "starting", "running")  # phases in which a master accepts requests


class JobTable:
    """The unfinished jobs of a scheduler, as the `Cluster` of its loop."""

    def __init__(self, nodes: tuple[NodeInfo, ...], fit_rates: FitRates = fit_no_rates) -> None:
        self.nodes = nodes
        self.entries: dict[str, JobEntry] = {}
        self._fit_rates = fit_rates

    @property
    def total_devices(self) -> int:
        return sum(node.devices for node in self.nodes)

    # ---- events

    def handle(self, event: ev.JobEvent, now: float) -> bool:
        """Records an event. Returns whether the policy should decide again."""
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

    # ---- Cluster

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
            # A job that ran already is not rejected: the cluster may grow again.
            if allocation.is_rejected and entry.account.launches == 0:
                entry.rejection_reason = allocation.reason

    # ---- actions

    def due_actions(self, now: float) -> list[ev.JobAction]:
        """Returns what can be done now to reach the plan. A job is busy until its action has a result, or it ends."""
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
                reason="stops: the user requested it" if entry.is_stop_requested else entry.reason,
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

    # ---- private

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
        entry.reason = "unchanged since the previous scheduler process"
        entry.progress = ev.JobProgress(account.step, account.total_steps, work_done=float(account.step))
        # Nodes that are no longer declared are left out.
        entry.allocated = {node.name: event.allocated[node.name] for node in self.nodes if node.name in event.allocated}
        # Until its master reports, no other job may have the devices it may hold.
        entry.desired_workers, entry.live_workers = entry.worker_count, account.max_workers
        return self._add_entry(entry)

    def _handle_exit(self, entry: JobEntry, phase: str) -> bool:
        """A stop that only the scheduler requested is a suspension, not an end."""
        if phase == "stopped" and entry.state is ScheduledJobState.SUSPENDING and not entry.is_stop_requested:
            _reset_to_waiting(entry)
            return False
        del self.entries[entry.name]
        # Rejected and stopped jobs left the snapshots before.
        return not (entry.rejection_reason or entry.is_stop_requested)

    def _handle_loss(self, entry: JobEntry, reason: str, now: float) -> bool:
        _reset_to_waiting(entry)
        losses = entry.account.losses + 1
        entry.account = replace(entry.account, losses=losses)
        entry.allocated, entry.allocated_at = {}, now
        entry.reason = f"{reason}; continues from its newest checkpoint"
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
    # A starting master does not know yet how far the job came.
    if event.phase not in ("pending", "starting"):
        losses = 0 if event.progress.step > entry.progress.step else entry.account.losses
        entry.progress = event.progress.merged_with(entry.progress)
        step, total_steps = entry.progress.step, entry.progress.total_steps
        entry.account = replace(entry.account, step=step, total_steps=total_steps, losses=losses)
    # A report from before our last action may be outdated.
    if event.reported_at > entry.last_action_at and not entry.is_busy:
        entry.phase, entry.desired_workers, entry.live_workers = event.phase, event.desired_workers, event.live_workers
        entry.batch_scale = event.progress.batch_scale


def _reset_to_waiting(entry: JobEntry) -> None:
    """The result of an action that is under way is still expected."""
    entry.state, entry.phase = ScheduledJobState.WAITING, ""
    entry.desired_workers = entry.live_workers = entry.batch_scale = 0


def _release_actions(entry: JobEntry) -> Iterator[ev.JobAction]:
    """Yields the actions that release devices or end a job; they are never delayed."""
    is_running = entry.state is ScheduledJobState.RUNNING
    if entry.state is ScheduledJobState.WAITING:
        if entry.rejection_reason or entry.is_stop_requested:
            entry.is_busy = True
            phase_and_reason = (
                ("failed", entry.rejection_reason)
                if entry.rejection_reason
                else ("stopped", "removed from the queue by the user")
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
        # Its devices are free only when its workers have left.
        entry.live_workers = max(entry.live_workers, entry.desired_workers)
        yield _resize(entry, entry.worker_count)


def _devices_needed(entry: JobEntry) -> int | None:
    """Returns the devices that its start or growth needs beyond those it holds; None: neither is due."""
    is_start = entry.state is ScheduledJobState.WAITING and entry.allocated and not entry.is_stop_requested
    is_growth = (
        entry.state is ScheduledJobState.RUNNING
        and entry.phase in _ACTIVE_PHASES
        and entry.worker_count > entry.desired_workers
    )
    return max(entry.worker_count * entry.submission.devices - entry.held_devices, 0) if is_start or is_growth else None


def _start_or_grow(entry: JobEntry, now: float) -> ev.JobAction:
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
    """Changes the workers, and the batch if the plan has another."""
    scale = entry.batch_scale_to_set
    entry.is_busy, entry.desired_workers, entry.batch_scale = True, workers, scale or entry.batch_scale
    return ev.ResizeJob(entry.name, workers, scale)


@dataclass(frozen=True, slots=True)
class RunningJob:
    name: str
    devices: int
    remaining_s: float | None  # None: unknown


@dataclass(frozen=True, slots=True)
class WaitingJob:
    name: str
    devices: int  # needed to start or to grow


def estimate_waits(free: int, running: Sequence[RunningJob], waiting: Sequence[WaitingJob]) -> dict[str, float | None]:
    """Estimates the seconds until each job has its devices, if the jobs ahead of it keep theirs. None: unknown.

    A running job that waits for more workers does not get them from its own end. Speeds change with the number of
    workers, and jobs ahead may end, so this is only an estimate.
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
