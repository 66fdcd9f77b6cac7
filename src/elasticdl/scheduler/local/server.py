"""The local scheduler's process: recovers what the last one left, gathers events, decides, saves, acts."""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from elasticdl.errors import SpecError
from elasticdl.scheduler.accounts.events import (
    JobAction,
    JobEvent,
    JobExited,
    JobRecovered,
    JobStopRequested,
    JobSubmitted,
)
from elasticdl.scheduler.accounts.report import ScheduledJobState, ScheduledJobStatus, SchedulerReport
from elasticdl.scheduler.local.executor import ActionExecutor
from elasticdl.scheduler.local.queue import SubmissionQueue
from elasticdl.scheduler.local.scheduler import LocalScheduler
from elasticdl.spec.directory import JobDirectory, read_json

POLL_INTERVAL_S = 0.2  # between two reads of the queue
SAVE_INTERVAL_S = 1.0  # between two saves of the accounts
RECOVERY_TIMEOUT_S = 3.0  # how long to wait for masters of recovered jobs before the first decision

ShowReport = Callable[[SchedulerReport, list[JobExited]], None]


class LocalSchedulerServer:
    """Serves one queue until it is stopped. Jobs go on without it."""

    def __init__(
        self, queue: SubmissionQueue, scheduler: LocalScheduler, show_report: ShowReport, notify: Callable[[str], None]
    ) -> None:
        """`show_report` gets every report and the jobs that ended since the last, `notify` messages for the user."""
        self._queue = queue
        self._scheduler = scheduler
        self._show_report = show_report
        self._notify = notify
        self._events: SimpleQueue[JobEvent | None] = SimpleQueue()  # None: wakes the loop
        self._executor = ActionExecutor(queue, self._events.put)
        self._unreadable: set[str] = set()
        self._is_stopping = False
        self._saved_at = 0.0
        self._decisions = 0  # included in the last saved report

    def stop(self) -> None:
        """May be called from a signal handler or another thread."""
        self._is_stopping = True
        self._events.put(None)

    def run(self) -> None:
        self._run_step(self._follow_recovered_jobs(recover_jobs(self._queue, self._notify)))
        while not self._is_stopping:
            self._run_step([*self._receive_events(POLL_INTERVAL_S), *self._read_queue()])

    def _follow_recovered_jobs(self, recovered: list[JobEvent]) -> list[JobEvent]:
        """Waits for the masters of running jobs, so that the first plan knows what they have."""
        running = {
            event.submission.name
            for event in recovered
            if isinstance(event, JobRecovered) and event.state is not ScheduledJobState.WAITING
        }
        for name in running:
            self._executor.follow_job(name)
        events, deadline = list(recovered), time.monotonic() + RECOVERY_TIMEOUT_S
        while running and not self._is_stopping and time.monotonic() < deadline:
            received = self._receive_events(POLL_INTERVAL_S)
            running -= {event.name for event in received if not isinstance(event, JobSubmitted | JobRecovered)}
            events += received
        return events

    def _run_step(self, events: list[JobEvent]) -> None:
        now = time.time()
        actions = self._scheduler.step(events, now)
        ended = [
            event
            for event in events
            if isinstance(event, JobExited) and event.name not in self._scheduler.job_table.entries
        ]
        self._save_report(actions, ended, now)
        for event in ended:
            self._queue.remove(event.name)
        for action in actions:
            self._executor.execute(action)
        self._executor.reap_children()

    def _save_report(self, actions: list[JobAction], ended: list[JobExited], now: float) -> None:
        """Saves before anything is done: the next scheduler process must know what this one may have begun."""
        decisions = self._scheduler.loop.decisions
        if not actions and not ended and decisions == self._decisions and now - self._saved_at < SAVE_INTERVAL_S:
            return
        report = self._scheduler.report(now)
        self._queue.save_report(report)
        self._saved_at, self._decisions = now, decisions
        self._show_report(report, ended)

    def _receive_events(self, timeout_s: float) -> list[JobEvent]:
        """Returns all available events; waits up to `timeout_s` for the first."""
        events: list[JobEvent] = []
        try:
            while True:
                event = self._events.get(timeout=0.0 if events else timeout_s)
                if event is None:
                    return events
                events.append(event)
        except Empty:
            return events

    def _read_queue(self) -> list[JobEvent]:
        """Returns new submissions and requests to stop."""
        entries = self._scheduler.job_table.entries
        events: list[JobEvent] = []
        names = self._queue.job_names()
        for name in names:
            if name not in entries and name not in self._unreadable:
                try:
                    submission = self._queue.find(name)
                except SpecError as exc:
                    self._unreadable.add(name)
                    self._notify(f"{name} is ignored: {exc}")
                    continue
                events += [JobSubmitted(submission)] if submission else []
        for name in self._queue.stop_requests():
            if name in names:
                events.append(JobStopRequested(name))
            else:
                self._queue.remove(name)  # a request for a job that had ended
        return events


def recover_jobs(queue: SubmissionQueue, notify: Callable[[str], None]) -> list[JobEvent]:
    """Returns every job of the queue in its last known state. Jobs that ended leave the queue."""
    report = queue.load_report()
    statuses = report.jobs if report else {}
    events: list[JobEvent] = []
    for name in queue.job_names():
        try:
            submission = queue.find(name)
        except SpecError as exc:
            notify(f"{name} is ignored: {exc}")
            continue
        status = statuses.get(name)
        if submission is None:
            continue
        if status is None or status.submitted_at != submission.submitted_at:
            events.append(JobSubmitted(submission))
        elif _is_over(queue.job_directory(name), status):
            queue.remove(name)
        else:
            events.append(JobRecovered(submission, status.state, status.allocated, status.account))
    return events


def _is_over(directory: JobDirectory, status: ScheduledJobStatus) -> bool:
    """Returns whether a scheduler that died had closed a job without processes; other ends are still to be reported."""
    if status.state is not ScheduledJobState.WAITING:
        return False
    result = read_json(directory.result)
    if result is None:
        return False
    is_suspended = result.get("phase") == "stopped" and status.account.launches > 0
    return not is_suspended
