"""What every job can do, wherever it runs, and where a submission reports to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from elasticdl.spec.directory import JobDirectory

if TYPE_CHECKING:
    from elasticdl.jobs.job_status import JobStatus
    from elasticdl.jobs.user_output import GrowingLog
    from elasticdl.master.runtime.replay import StoredJournal
    from elasticdl.rpc import elasticdl_pb2 as pb
    from elasticdl.rpc.client import MasterClient
    from elasticdl.spec import JobSpec


THIS_MACHINE = "here"  # the location of jobs that are processes of this machine
KILL_REASON = "killed at once by the user"
MASTER_TIMEOUT_S = 15.0  # a master that was killed this moment is back within a few seconds


class WatchedJob(Protocol):
    """A job that is watched until it is over. `directory` is its own, or a local copy of what is known of it."""

    @property
    def directory(self) -> JobDirectory: ...

    def is_alive(self) -> bool:
        """Whether a launcher or master keeps it going. If it has a result, that is in `directory` from now on."""
        ...

    @property
    def place(self) -> str:
        """Where it runs, for a sentence: "in DIRECTORY", or "in namespace N of context C"."""
        ...

    def has_failed_to_start(self) -> bool:
        """Whether its launcher has ended without a result."""
        ...

    def await_exit(self) -> None:
        """Waits a few seconds for the last processes of a job that is over."""
        ...

    def has_started(self) -> bool:
        """Whether its master has been up before, so that it is now restarting and not starting."""
        ...

    def unreachable_reason(self) -> str:
        """Why its master does not answer; "" if that is not known."""
        ...

    def logs_hint(self) -> str:
        """Where its logs are, for a sentence."""
        ...

    def open_log(self, worker: str) -> GrowingLog:
        """Opens the log of a worker at its beginning."""
        ...

    def kill(self) -> str:
        """Kills all of it at once. Returns a message about that."""
        ...

    @property
    def local_directory(self) -> JobDirectory | None:
        """The job's own directory; None for a job on a cluster."""
        ...

    def final_status(self) -> JobStatus:
        """The status of the job once it is over."""
        ...


class JobBackend(Protocol):
    """A job that exists, wherever it runs. A method that needs a running job raises SpecError if the job is over."""

    @property
    def name(self) -> str: ...

    @property
    def location(self) -> str:
        """For a column: "here", or CONTEXT/NAMESPACE."""
        ...

    @property
    def place(self) -> str:
        """Where it runs, for a sentence: "in DIRECTORY", or "in namespace N of context C"."""
        ...

    def refresh(self) -> JobBackend:
        """The job as it is now. JobNotFound if it was deleted."""
        ...

    def load_spec(self) -> JobSpec:
        """The resolved job."""
        ...

    def has_processes(self) -> bool:
        """Whether a launcher or master of it still runs on this machine."""
        ...

    def status(self, timeout_s: float) -> pb.JobStatus:
        """The master's status, or the last one on record if the master does not answer within `timeout_s`."""
        ...

    def quick_status(self) -> pb.JobStatus:
        """As `status`, without a long wait: for lists."""
        ...

    def events(self) -> list[pb.EventStatus]:
        """All recorded events, the oldest first."""
        ...

    def status_document(self, status: JobStatus) -> dict[str, Any]:
        """The status as plain JSON values, for scripts."""
        ...

    @property
    def context(self) -> str:
        """The context of the kubeconfig; "" for a job of this machine."""
        ...

    @property
    def local_directory(self) -> JobDirectory | None:
        """The job's directory on this machine; None for a job on a cluster."""
        ...

    def connect_master(self) -> AbstractContextManager[MasterClient]: ...

    def scale(self, workers: int, ps: int, batch_scale: int = 0) -> str:
        """Asks for numbers of workers, ps, and global batches per update; 0: as before. Returns the answer."""
        ...

    def stop(self) -> str:
        """Stops it with a checkpoint. Returns the answer; "" if its master gives none."""
        ...

    def logged_replicas(self, role: str) -> list[str]:
        """The replicas of a role, "worker" or "ps", that have a log."""
        ...

    def logs(self, replica: str, follow: bool) -> Iterator[tuple[str, str]]:
        """Writer and line, of one replica; "": of all."""
        ...

    def kill(self, *, delete: bool, reason: str = KILL_REASON) -> str:
        """Ends it at once. With `delete`, nothing of it stays. The result of a job of this machine gives `reason`."""
        ...

    def read_journal(self) -> tuple[StoredJournal, JobSpec]:
        """The journal, and the job as its master knows it. SpecError if it cannot be read from this machine."""
        ...

    def open_directory(self) -> AbstractContextManager[JobDirectory]:
        """Its directory, or a temporary one with the files of a job on a cluster."""
        ...


DataCheckProgress = Callable[[str, int, int], None]  # address of the data, bytes done, bytes in all
AnalysisProgress = Callable[[str, float], None]  # what is done, how much of it, 0 to 1

_log = logging.getLogger("elasticdl")


class SubmissionReporter:
    """Logs what a submission reports, and shows no progress. The command line's subclass prints and shows both."""

    def say(self, line: str) -> None:
        _log.info(line)

    def warn(self, line: str) -> None:
        _log.warning(line)

    @contextmanager
    def data_check_progress(self) -> Iterator[DataCheckProgress]:
        yield lambda address, done, total: None

    @contextmanager
    def analysis_progress(self) -> Iterator[AnalysisProgress]:
        yield lambda what, done: None
