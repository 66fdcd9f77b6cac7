"""Carries out what the book says is due, and tells what became of it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from elasticdl.errors import ElasticDLError, SpecError
from elasticdl.launcher import process
from elasticdl.launcher.making import make, make_again
from elasticdl.launcher.record import is_kept
from elasticdl.rpc.client import MasterClient
from elasticdl.scheduler.local import watching
from elasticdl.scheduler.local.closing import close
from elasticdl.scheduler.local.events import (
    Action,
    Close,
    Done,
    Ended,
    Event,
    Failed,
    Lost,
    Resize,
    Start,
    Stop,
    Suspend,
)
from elasticdl.scheduler.local.queue import Queue
from elasticdl.spec.directory import JobDirectory

REACH_S = 10.0  # a master that was launched this moment, or killed, is there by then
AT_ONCE = 8

_log = logging.getLogger(__name__)


class Hands:
    """Never waits: every action is carried out by a thread, and ends in Done or Failed."""

    def __init__(self, queue: Queue, tell: Callable[[Event], None]) -> None:
        self._queue = queue
        self._tell = tell
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="hand")

    def carry_out(self, action: Action) -> None:
        self._threads.submit(self._carry_out, action)

    def follow(self, name: str) -> None:
        watching.follow(self._queue.directory_of(name), self._tell)

    def reap(self) -> None:
        """Launchers that have ended are our children, as long as we are there."""
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def _carry_out(self, action: Action) -> None:
        directory = self._queue.directory_of(action.name)
        _log.info("%s", action)
        try:
            match action:
                case Start():
                    self._start(action, directory)
                case Resize(_, workers, batch_scale):
                    with MasterClient.connect(directory, REACH_S) as client:
                        client.scale(workers, batch_scale=batch_scale)
                case Suspend(_, reason):
                    self._stop(directory, f"suspended by the scheduler: {reason}")
                case Stop():
                    self._stop(directory, "elasticdl stop")
                case Close(name, phase, reason):
                    close(directory, phase, reason)
                    self._tell(Ended(name, phase))
            self._tell(Done(action.name, time.time()))
        except Exception as exc:  # whatever it is: a job whose action is never answered would be busy for ever
            is_known = isinstance(exc, ElasticDLError | OSError)
            _log.warning("%s: %s", action, exc, exc_info=not is_known)
            if isinstance(action, Start):
                self._tell(Lost(action.name, f"cannot be started: {exc}"))
            self._tell(Failed(action.name, time.time()))

    def _start(self, action: Start, directory: JobDirectory) -> None:
        submission = self._queue.find(action.name)
        if submission is None:
            raise SpecError(f"{action.name} is in the queue no more")
        if not is_kept(directory):  # else it was started a moment ago, by a scheduler that died
            # Whatever we know of it: where a run has left something, this one goes on from there.
            resumes = action.resumes or directory.launcher.exists() or directory.result.exists()
            spec = submission.job_spec(action.workers, resumes=resumes)
            if not directory.root.exists():
                make(directory, spec)
            elif resumes or not directory.spec.exists():
                make_again(directory, spec)
            else:
                directory.write_spec(spec)
            process.start(directory, attached_fd=None, environ=submission.environ)
        self.follow(action.name)

    def _stop(self, directory: JobDirectory, reason: str) -> None:
        with MasterClient.connect(directory, REACH_S) as client:
            client.stop(at_once=False, reason=reason)
