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

POLL_INTERVAL_S = 0.2  # the queue is looked at so often
SAVE_INTERVAL_S = 1.0  # accounts are written down so often
RECOVERY_TIMEOUT_S = 3.0  # masters of jobs that were found may take so long to be heard before anything is decided

ShowReport = Callable[[SchedulerReport, list[JobExited]], None]


class LocalSchedulerServer:
    """Serves one queue until it is told to stop. Jobs go on without it."""

    def __init__(
        self, queue: SubmissionQueue, turns: LocalScheduler, show: ShowReport, say: Callable[[str], None]
    ) -> None:
        """`show` is given every report, with the jobs that ended since the last; `say` what a person must know."""
        self._queue = queue
        self._turns = turns
        self._show = show
        self._say = say
        self._news: SimpleQueue[JobEvent | None] = SimpleQueue()  # None: look whether to stop
        self._hands = ActionExecutor(queue, self._news.put)
        self._unreadable: set[str] = set()
        self._is_stopping = False
        self._saved_at = 0.0
        self._decisions = 0  # that are written down

    def stop(self) -> None:
        """From a signal handler or another thread."""
        self._is_stopping = True
        self._news.put(None)

    def run(self) -> None:
        self._turn(self._greet(recover_jobs(self._queue, self._say)))
        while not self._is_stopping:
            self._turn([*self._heard(POLL_INTERVAL_S), *self._asked()])

    def _greet(self, found: list[JobEvent]) -> list[JobEvent]:
        """What is heard of jobs that run already, so that the first plan knows what they have."""
        running = {
            one.submission.name
            for one in found
            if isinstance(one, JobRecovered) and one.state is not ScheduledJobState.WAITING
        }
        for name in running:
            self._hands.follow_job(name)
        events, deadline = list(found), time.monotonic() + RECOVERY_TIMEOUT_S
        while running and not self._is_stopping and time.monotonic() < deadline:
            heard = self._heard(POLL_INTERVAL_S)
            running -= {event.name for event in heard if not isinstance(event, JobSubmitted | JobRecovered)}
            events += heard
        return events

    def _turn(self, events: list[JobEvent]) -> None:
        now = time.time()
        actions = self._turns.step(events, now)
        ended = [
            event
            for event in events
            if isinstance(event, JobExited) and event.name not in self._turns.job_table.entries
        ]
        self._write_down(actions, ended, now)
        for event in ended:
            self._queue.remove(event.name)
        for action in actions:
            self._hands.execute(action)
        self._hands.reap_children()

    def _write_down(self, actions: list[JobAction], ended: list[JobExited], now: float) -> None:
        """Before anything is done: a scheduler after us must know what we may have begun."""
        decisions = self._turns.loop.decisions
        if not actions and not ended and decisions == self._decisions and now - self._saved_at < SAVE_INTERVAL_S:
            return
        report = self._turns.report(now)
        report.save(self._queue.report_path)
        self._saved_at, self._decisions = now, decisions
        self._show(report, ended)

    def _heard(self, timeout_s: float) -> list[JobEvent]:
        """All there is, after up to `timeout_s` without anything."""
        events: list[JobEvent] = []
        try:
            while True:
                event = self._news.get(timeout=0.0 if events else timeout_s)
                if event is None:
                    return events
                events.append(event)
        except Empty:
            return events

    def _asked(self) -> list[JobEvent]:
        """What people put into the queue."""
        known = self._turns.job_table.entries
        found: list[JobEvent] = []
        names = self._queue.job_names()
        for name in names:
            if name not in known and name not in self._unreadable:
                try:
                    submission = self._queue.find(name)
                except SpecError as exc:
                    self._unreadable.add(name)
                    self._say(f"{name} is left alone: {exc}")
                    continue
                found += [JobSubmitted(submission)] if submission else []
        for name in self._queue.stop_requests():
            if name in names:
                found.append(JobStopRequested(name))
            else:
                self._queue.remove(name)  # the mark of a job that was over by then
        return found


def recover_jobs(queue: SubmissionQueue, say: Callable[[str], None]) -> list[JobEvent]:
    """Every job of the queue, as it was known last. Those that are over leave the queue."""
    report = queue.load_report()
    known = report.jobs if report else {}
    found: list[JobEvent] = []
    for name in queue.job_names():
        try:
            submission = queue.find(name)
        except SpecError as exc:
            say(f"{name} is left alone: {exc}")
            continue
        standing = known.get(name)
        if submission is None:
            continue
        if standing is None or standing.submitted_at != submission.submitted_at:
            found.append(JobSubmitted(submission))
        elif _is_over(queue.job_directory(name), standing):
            queue.remove(name)
        else:
            found.append(JobRecovered(submission, standing.state, standing.allocated, standing.account))
    return found


def _is_over(directory: JobDirectory, standing: ScheduledJobStatus) -> bool:
    """Whether a job without processes was closed by a scheduler that then died; of others the end is yet to come."""
    if standing.state is not ScheduledJobState.WAITING:
        return False
    result = read_json(directory.result)
    if result is None:
        return False
    is_suspended = result.get("phase") == "stopped" and standing.account.launches > 0
    return not is_suspended
