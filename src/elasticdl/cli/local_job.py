"""A job of processes on this machine, known by its directory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elasticdl.cli import home
from elasticdl.cli.tail import Tail
from elasticdl.errors import ElasticDLError, SpecError, TransientError
from elasticdl.spec.directory import JobDirectory, read_json

if TYPE_CHECKING:
    from rich.console import Console

    from elasticdl.master.verification import StoredJournal
    from elasticdl.rpc import elasticdl_pb2 as pb
    from elasticdl.rpc.client import MasterClient
    from elasticdl.spec import JobSpec

HERE = "here"


class LocalJob:
    where = HERE

    def __init__(self, directory: JobDirectory) -> None:
        self._directory = directory
        self.name = directory.root.name

    def status(self, timeout_s: float) -> pb.JobStatus:
        from elasticdl.cli import queued
        from elasticdl.cli.look import look

        return queued.shown(self._directory, look(self._directory, timeout_s))

    def glance(self) -> pb.JobStatus:
        return self.status(1.0)

    def events(self) -> list[pb.EventStatus]:
        from elasticdl.cli import resumed

        return resumed.read_events(self._directory)

    def document(self, status: pb.JobStatus) -> dict[str, Any]:
        from elasticdl.cli import document, queued
        from elasticdl.launcher import living

        left = [] if home.is_alive(self._directory) else living.find_replicas(self._directory)
        return document.of(status, str(self._directory.root)) | {
            "scheduling": queued.document(self.name),
            "leftover_processes": [{"replica": one.replica, "pid": one.pid} for one in left],
        }

    def summarize(self, status: pb.JobStatus, console: Console) -> None:
        from elasticdl.cli import summary

        summary.show(status, self._directory, console)

    def client(self) -> AbstractContextManager[MasterClient]:
        from elasticdl.cli.running import client_of

        return client_of(self._directory)

    def scale(self, workers: int, ps: int, batch_scale: int = 0) -> str:
        from elasticdl.cli import queued

        if workers:
            queued.refuse_to_scale(self.name)
        with self.client() as client:
            return client.scale(workers, ps, batch_scale)

    def stop(self) -> str:
        from elasticdl.cli import queued

        if not home.is_alive(self._directory) and (told := self._end_leftovers()):
            return f"{told}; {queued.withdraw(self._directory)}" if home.queue().has(self.name) else told
        if home.queue().has(self.name):
            if not home.is_alive(self._directory):
                return queued.withdraw(self._directory)
            home.queue().ask_to_stop(self.name)  # else the scheduler might go on with it
        with self.client() as client:
            return client.stop(at_once=False, reason="elasticdl stop")

    def _end_leftovers(self) -> str:
        """End what is left of a job that has neither launcher nor master; "" where nothing is."""
        from elasticdl.launcher import living, process

        left = process.end_leftovers(self._directory, "elasticdl stop")
        if not left:
            return ""
        step = int((read_json(self._directory.result) or {}).get("checkpoint_step") or -1)
        kept = f"; the last checkpoint is of step {step:,}" if step >= 0 else ""
        return f"{self.name}: launcher and master were gone; ended what was left of it: {living.sentence(left)}{kept}"

    def replicas(self, role: str) -> list[str]:
        return [path.stem for path in sorted(self._directory.logs.glob(f"{role}-*.log"))]

    def logs(self, replica: str, follow: bool) -> Iterator[tuple[str, str]]:
        from elasticdl.cli import tail

        return tail.lines(self._directory, replica, follow)

    def kill(self, *, delete: bool) -> str:
        from elasticdl.cli import attach

        was_over = self._directory.result.exists()
        is_queued = home.queue().has(self.name)
        if is_queued:
            home.queue().ask_to_stop(self.name)
        attach.kill(self._directory)
        if is_queued and not home.queue().is_served():
            home.queue().remove(self.name)
        if delete:
            return self._delete()
        return f"{self.name}: was over already" if was_over else f"{self.name}: killed"

    def _delete(self) -> str:
        """Remove the job's directory, checkpoints included; of a job whose processes are gone."""
        from elasticdl.cli import queued

        if home.queue().has(self.name):
            queued.withdraw(self._directory)
            if home.queue().has(self.name):
                raise TransientError(f"{self.name}: the scheduler still holds it; try again in a few seconds")
        root = self._directory.root
        spec = self._directory.load_spec()
        kept = [path for path in (spec.output, spec.checkpoint.directory) if path and not _is_inside(path, root)]
        try:
            shutil.rmtree(root)
        except OSError as exc:
            raise ElasticDLError(f"{root}: cannot be removed: {exc}; remove it by hand") from exc
        beyond = f"; what it wrote elsewhere is kept: {', '.join(kept)}" if kept else ""
        return f"{self.name}: deleted, with its logs and the checkpoints in {root}{beyond}"

    def stored_journal(self) -> tuple[StoredJournal, JobSpec]:
        from elasticdl.master.eventlog import count_entries
        from elasticdl.master.verification import StoredJournal

        path = self._directory.journal
        entries = count_entries(self._directory.events)
        try:
            content = path.read_bytes()
        except FileNotFoundError as exc:
            raise SpecError(f"{path} does not exist: no master of this job has begun yet, or it was deleted") from exc
        return StoredJournal(str(path), content, can_be_torn=True, entries=entries), self._directory.load_spec()

    def files(self) -> AbstractContextManager[JobDirectory]:
        return nullcontext(self._directory)


def _is_inside(path: str, root: Path) -> bool:
    return "://" not in path and Path(path).absolute().is_relative_to(root)


class LocalWatched:
    """A job of this machine that somebody stays with."""

    def __init__(self, directory: JobDirectory) -> None:
        self.directory = directory

    def is_alive(self) -> bool:
        return home.is_starting_or_alive(self.directory)

    def has_started(self) -> bool:
        return self.directory.master.exists()

    def why_away(self) -> str:
        return ""

    def logs(self) -> str:
        return f"the logs in {self.directory.logs}"

    def open_log(self, worker: str) -> Tail:
        return Tail(self.directory.log(worker))

    def kill(self) -> str:
        from elasticdl.cli import attach, words

        attach.kill(self.directory)
        resumption = words.resumption(self.directory.root.name, self.directory.load_spec().kind)
        return f"killed. Checkpoints written so far are kept; go on with `{resumption}`"

    def finish(self, console: Console) -> None:
        from elasticdl.cli import summary

        summary.finish(self.directory, console)
