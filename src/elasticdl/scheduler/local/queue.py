"""The scheduler's directory: submissions, requests to stop, and the report; every file is replaced as a whole."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from elasticdl.errors import SpecError, StateDamaged
from elasticdl.scheduler.accounts.report import SchedulerReport
from elasticdl.scheduler.accounts.submission import JobSubmission
from elasticdl.spec.directory import JobDirectory, read_json, write_json

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SubmissionQueue:
    """The queue of one home: jobs are in `home/jobs`, the scheduler's files in `home/scheduler`."""

    home: Path

    @property
    def root(self) -> Path:
        return self.home / "scheduler"

    @property
    def report_path(self) -> Path:
        return self.root / "plan.json"

    def job_directory(self, name: str) -> JobDirectory:
        return JobDirectory(self.home / "jobs" / name)

    # ---- submissions

    def submit(self, submission: JobSubmission) -> None:
        self._entries.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(self._entry(submission.name), submission.to_document())

    def find(self, name: str) -> JobSubmission | None:
        """Raises SpecError if the file holds no submission."""
        path = self._entry(name)
        try:
            document = read_json(path)
            return JobSubmission.from_document(document) if document is not None else None
        except StateDamaged as exc:
            raise SpecError(f"{exc}; submit the job again") from exc
        except ValueError as exc:
            raise SpecError(f"{path}: {exc}") from exc

    def has_job(self, name: str) -> bool:
        return self._entry(name).exists()

    def job_names(self) -> list[str]:
        return sorted(path.stem for path in self._entries.glob("*.json"))

    def remove(self, name: str) -> None:
        self._entry(name).unlink(missing_ok=True)
        self._stop_mark(name).unlink(missing_ok=True)

    # ---- requests to stop

    def request_stop(self, name: str) -> None:
        self._stop_mark(name).touch()

    def stop_requests(self) -> set[str]:
        return {path.stem for path in self._entries.glob("*.stop")}

    # ---- the report

    def save_report(self, report: SchedulerReport) -> None:
        write_json(self.report_path, report.to_document())

    def load_report(self) -> SchedulerReport | None:
        """Returns None if no report exists that this version understands; masters and directories know the rest."""
        try:
            document = read_json(self.report_path)
            return None if document is None else SchedulerReport.from_document(document)
        except (StateDamaged, ValueError, KeyError, TypeError) as exc:
            _log.warning("%s cannot be read: %r", self.report_path, exc)
            return None

    # ---- the lock

    @contextmanager
    def acquire_lock(self, patience_s: float = 0.0) -> Iterator[bool]:
        """Yields whether this process alone serves the queue until the end of the block."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + patience_s
        try:
            # Another process may hold the lock only to see whether the queue is served.
            while not (is_ours := _try_lock(descriptor)) and time.monotonic() < deadline:
                time.sleep(0.02)
            yield is_ours
        finally:
            os.close(descriptor)

    def is_served(self) -> bool:
        if not (self.root / "lock").exists():
            return False
        with self.acquire_lock() as is_ours:
            return not is_ours

    @property
    def _entries(self) -> Path:
        return self.root / "queue"

    def _entry(self, name: str) -> Path:
        return self._entries / f"{name}.json"

    def _stop_mark(self, name: str) -> Path:
        return self._entries / f"{name}.stop"


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


_EXIT_CODES = {"failed": SpecError.exit_code, "stopped": 130}


def close_job(directory: JobDirectory, phase: str, reason: str) -> None:
    """Writes a result for a job that ends without processes. That of a suspended job stays: it says what it trained."""
    if not directory.root.exists() or (directory.result.exists() and phase == "stopped"):
        return
    now = time.time()
    result = {"phase": phase, "reason": reason, "exit_code": _EXIT_CODES[phase], "started_at": now, "ended_at": now}
    write_json(directory.result, result)
