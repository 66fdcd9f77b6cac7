"""What every job can do, wherever it runs: processes of this machine, or pods of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from elasticdl.spec.directory import JobDirectory

if TYPE_CHECKING:
    from rich.console import Console

    from elasticdl.jobs.user_output import GrowingLog
    from elasticdl.master.runtime.replay import StoredJournal
    from elasticdl.rpc import elasticdl_pb2 as pb
    from elasticdl.rpc.client import MasterClient
    from elasticdl.spec import JobSpec


class WatchedJob(Protocol):
    """A job that somebody stays with. `directory` is its own, or one that stands for it."""

    @property
    def directory(self) -> JobDirectory: ...

    def is_alive(self) -> bool:
        """Whether somebody keeps it going. If it has a result, that lies in `directory` from now on."""
        ...

    def has_started(self) -> bool:
        """Whether its master has been there before: then it is not started but started again."""
        ...

    def unreachable_reason(self) -> str:
        """Why its master does not answer; "" where nobody knows."""
        ...

    def logs_hint(self) -> str:
        """Where its logs are, for a sentence."""
        ...

    def open_log(self, worker: str) -> GrowingLog:
        """What this worker writes, from the beginning."""
        ...

    def kill(self) -> str:
        """End all of it at once; what there is to say about that."""
        ...

    def show_summary(self, console: Console) -> None:
        """Tell how it ended."""
        ...


class Job(Protocol):
    """A job that exists. A method that needs a running one raises SpecError where it is over."""

    @property
    def name(self) -> str: ...

    @property
    def location(self) -> str:
        """For a column: "here", or CONTEXT/NAMESPACE."""
        ...

    def status(self, timeout_s: float) -> pb.JobStatus:
        """As its master sees it, which is given `timeout_s` to answer; else as it was written down last."""
        ...

    def quick_status(self) -> pb.JobStatus:
        """As `status`, where many are looked at."""
        ...

    def events(self) -> list[pb.EventStatus]:
        """All that are kept, the oldest first."""
        ...

    def status_document(self, status: pb.JobStatus) -> dict[str, Any]:
        """For scripts."""
        ...

    def show_summary(self, status: pb.JobStatus, console: Console) -> None:
        """Tell a person how a job that is over ended."""
        ...

    def connect_master(self) -> AbstractContextManager[MasterClient]: ...

    def scale(self, workers: int, ps: int, batch_scale: int = 0) -> str:
        """Wish for so many workers, ps, and global batches an update; 0: as before. What became of it."""
        ...

    def stop(self) -> str:
        """End it with a checkpoint. What became of it; "" where its master says nothing."""
        ...

    def logged_replicas(self, role: str) -> list[str]:
        """Those of a role, "worker" or "ps", that have written something."""
        ...

    def logs(self, replica: str, follow: bool) -> Iterator[tuple[str, str]]:
        """Writer and line of one replica; "": of all."""
        ...

    def kill(self, *, delete: bool) -> str:
        """End it at once; with `delete` nothing of it stays."""
        ...

    def read_journal(self) -> tuple[StoredJournal, JobSpec]:
        """What its master wrote down, and the job as that master knows it. SpecError where it cannot be had here."""
        ...

    def open_directory(self) -> AbstractContextManager[JobDirectory]:
        """Its directory, or one with what is known of it."""
        ...
