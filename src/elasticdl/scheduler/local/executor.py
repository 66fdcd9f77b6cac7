"""Carries out the scheduler's actions on local jobs, and follows each job until its last process has ended."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from elasticdl.errors import ElasticDLError, SpecError
from elasticdl.launcher.local import processes
from elasticdl.launcher.local.job_directory import create_job_directory, recreate_job_directory
from elasticdl.launcher.local.record import is_running
from elasticdl.rpc.client import MasterClient
from elasticdl.scheduler.accounts import progress
from elasticdl.scheduler.accounts.events import (
    ActionFailed,
    ActionSucceeded,
    CloseJob,
    JobAction,
    JobEvent,
    JobExited,
    JobLost,
    ResizeJob,
    StartJob,
    StopJob,
    SuspendJob,
)
from elasticdl.scheduler.local.queue import SubmissionQueue, close_job
from elasticdl.spec.directory import JobDirectory, read_json

CONNECT_TIMEOUT_S = 10.0  # a master that was just launched, or killed, answers within this time
MAX_CONCURRENT_ACTIONS = 8
STATUS_HZ = 2.0
MASTER_TIMEOUT_S = 2.0  # a master that does not answer for this time is looked up again
LAUNCH_TIMEOUT_S = 20.0  # a launcher records its process within this time
POLL_S = 0.05

_log = logging.getLogger(__name__)


class ActionExecutor:
    """Carries out actions in threads, without waiting. Each ends with ActionSucceeded or ActionFailed."""

    def __init__(self, queue: SubmissionQueue, report_event: Callable[[JobEvent], None]) -> None:
        self._queue = queue
        self._report_event = report_event
        self._threads = ThreadPoolExecutor(MAX_CONCURRENT_ACTIONS, thread_name_prefix="action")

    def execute(self, action: JobAction) -> None:
        self._threads.submit(self._execute, action)

    def follow_job(self, name: str) -> None:
        follow_job(self._queue.job_directory(name), self._report_event)

    def reap_children(self) -> None:
        """Reaps launchers that have ended: they are children of this process."""
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def _execute(self, action: JobAction) -> None:
        directory = self._queue.job_directory(action.name)
        _log.info("%s", action)
        try:
            match action:
                case StartJob():
                    self._start(action, directory)
                case ResizeJob(_, workers, batch_scale):
                    with MasterClient.connect(directory, CONNECT_TIMEOUT_S) as client:
                        client.scale(workers, batch_scale=batch_scale)
                case SuspendJob(_, reason):
                    self._stop(directory, f"suspended by the scheduler: {reason}")
                case StopJob():
                    self._stop(directory, "elasticdl stop")
                case CloseJob(name, phase, reason):
                    close_job(directory, phase, reason)
                    self._report_event(JobExited(name, phase))
            self._report_event(ActionSucceeded(action.name, time.time()))
        except Exception as exc:  # any error: a job whose action has no result would stay busy forever
            is_known = isinstance(exc, ElasticDLError | OSError)
            _log.warning("%s: %s", action, exc, exc_info=not is_known)
            if isinstance(action, StartJob):
                self._report_event(JobLost(action.name, f"cannot be started: {exc}"))
            self._report_event(ActionFailed(action.name, time.time()))

    def _start(self, action: StartJob, directory: JobDirectory) -> None:
        submission = self._queue.find(action.name)
        if submission is None:
            raise SpecError(f"{action.name} is no longer in the queue")
        if not is_running(directory):  # otherwise a scheduler that died has just started it
            # A directory with traces of a run shows that the job ran, whatever the account says.
            resumes = action.resumes or directory.launcher.exists() or directory.result.exists()
            spec = submission.to_launch_spec(action.workers, resumes=resumes)
            if not directory.root.exists():
                create_job_directory(directory, spec)
            elif resumes or not directory.spec.exists():
                recreate_job_directory(directory, spec)
            else:
                directory.write_spec(spec)
            processes.start_launcher(directory, attached_fd=None, environ=submission.environ)
        self.follow_job(action.name)

    def _stop(self, directory: JobDirectory, reason: str) -> None:
        with MasterClient.connect(directory, CONNECT_TIMEOUT_S) as client:
            client.stop(at_once=False, reason=reason)


def follow_job(directory: JobDirectory, report_event: Callable[[JobEvent], None]) -> threading.Thread:
    """Reports the job's events from a thread, which ends when its last process has ended."""
    name = directory.root.name
    thread = threading.Thread(
        target=_follow_until_end, args=(name, directory, report_event), name=f"follow-{name}", daemon=True
    )
    thread.start()
    return thread


def _follow_until_end(name: str, directory: JobDirectory, report_event: Callable[[JobEvent], None]) -> None:
    deadline = time.monotonic() + LAUNCH_TIMEOUT_S
    while True:
        is_started = directory.launcher.exists()
        is_alive = is_running(directory) if is_started else time.monotonic() < deadline
        result = read_json(directory.result)
        if not is_alive or (result is not None and not is_started):
            report_event(JobLost(name) if result is None else JobExited(name, str(result.get("phase", "failed"))))
            return
        if result is not None or not is_started:
            time.sleep(POLL_S)  # its last processes end, or its first ones start
            continue
        try:
            with MasterClient.connect(directory, MASTER_TIMEOUT_S) as client:
                for status in client.watch(STATUS_HZ):
                    report_event(progress.parse_status_event(name, status))
        except ElasticDLError as exc:
            _log.info("%s: %s", name, exc)
            time.sleep(POLL_S)
