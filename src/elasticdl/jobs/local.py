"""A job of processes on this machine, known by its directory."""

from __future__ import annotations

import os
import select
import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elasticdl.errors import ElasticDLError, JobNotFound, MasterUnreachable, SpecError, TransientError
from elasticdl.jobs import history, home
from elasticdl.jobs.interface import KILL_REASON, MASTER_TIMEOUT_S, THIS_MACHINE
from elasticdl.jobs.job_status import JobStatus
from elasticdl.spec.directory import JobDirectory, read_json, write_json

if TYPE_CHECKING:
    from elasticdl.master.runtime.replay import StoredJournal
    from elasticdl.rpc import elasticdl_pb2 as pb
    from elasticdl.rpc.client import MasterClient
    from elasticdl.spec import JobSpec


STOPPED_EXIT_CODE = 130
LAUNCHER_EXIT_TIMEOUT_S = 10.0  # how long the last processes of a finished job may take to end


class LocalJob:
    location = THIS_MACHINE
    context = ""

    def __init__(self, directory: JobDirectory) -> None:
        self._directory = directory
        self.name = directory.root.name

    @property
    def place(self) -> str:
        return f"in {self._directory.root}"

    def refresh(self) -> LocalJob:
        if not self._directory.spec.exists():
            raise JobNotFound(f"no job {self.name!r} in {home.jobs_directory()} any more: it was deleted")
        return self

    def load_spec(self) -> JobSpec:
        return self._directory.load_spec()

    def has_processes(self) -> bool:
        return home.is_alive(self._directory)

    def status(self, timeout_s: float) -> pb.JobStatus:
        from elasticdl.jobs import queueing

        return queueing.add_scheduling(self._directory, current_status(self._directory, timeout_s))

    def quick_status(self) -> pb.JobStatus:
        return self.status(1.0)

    def events(self) -> list[pb.EventStatus]:
        from elasticdl.jobs import history

        return history.read_events_of_all_runs(self._directory)

    def status_document(self, status: JobStatus) -> dict[str, Any]:
        from elasticdl.jobs import documents, queueing
        from elasticdl.launcher.local import processes

        left = [] if home.is_alive(self._directory) else processes.find_replicas(self._directory)
        return documents.status_document(status, str(self._directory.root)) | {
            "scheduling": queueing.scheduling_document(self.name),
            "leftover_processes": [{"replica": process.replica, "pid": process.pid} for process in left],
        }

    @property
    def local_directory(self) -> JobDirectory:
        return self._directory

    def connect_master(self) -> AbstractContextManager[MasterClient]:

        return connect_master(self._directory)

    def scale(self, workers: int, ps: int, batch_scale: int = 0) -> str:
        from elasticdl.jobs import queueing

        if workers:
            queueing.refuse_scaling(self.name)
        with self.connect_master() as client:
            return client.scale(workers, ps, batch_scale)

    def stop(self) -> str:
        from elasticdl.jobs import queueing

        if not home.is_alive(self._directory) and (message := self._end_leftovers()):
            return (
                f"{message}; {queueing.withdraw_job(self._directory)}"
                if home.local_queue().has_job(self.name)
                else message
            )
        if home.local_queue().has_job(self.name):
            if not home.is_alive(self._directory):
                return queueing.withdraw_job(self._directory)
            home.local_queue().request_stop(self.name)  # else the scheduler might go on with it
        with self.connect_master() as client:
            return client.stop(at_once=False, reason="elasticdl stop")

    def _end_leftovers(self) -> str:
        """Ends the processes of a job without launcher and master. Returns a message; "" if there are none."""
        from elasticdl.launcher.local import processes

        left = processes.end_leftovers(self._directory, "elasticdl stop")
        if not left:
            return ""
        step = int((read_json(self._directory.result) or {}).get("checkpoint_step") or -1)
        checkpoint_note = f"; the last checkpoint is of step {step:,}" if step >= 0 else ""
        ended = processes.describe_processes(left)
        return f"{self.name}: launcher and master were gone; ended what was left of it: {ended}{checkpoint_note}"

    def logged_replicas(self, role: str) -> list[str]:
        return [path.stem for path in sorted(self._directory.logs.glob(f"{role}-*.log"))]

    def logs(self, replica: str, follow: bool) -> Iterator[tuple[str, str]]:

        return read_logs(self._directory, replica, follow)

    def kill(self, *, delete: bool, reason: str = KILL_REASON) -> str:
        was_over = self._directory.result.exists()
        is_queued = home.local_queue().has_job(self.name)
        if is_queued:
            home.local_queue().request_stop(self.name)
        kill_job(self._directory, reason)
        if is_queued and not home.local_queue().is_served():
            home.local_queue().remove(self.name)
        if delete:
            return self._delete()
        return f"{self.name}: was over already" if was_over else f"{self.name}: killed"

    def _delete(self) -> str:
        """Removes the directory of a job without processes, with its checkpoints."""
        from elasticdl.jobs import queueing

        if home.local_queue().has_job(self.name):
            queueing.withdraw_job(self._directory)
            if home.local_queue().has_job(self.name):
                raise TransientError(f"{self.name}: the scheduler still holds it; try again in a few seconds")
        root = self._directory.root
        spec = self._directory.load_spec()
        kept_paths = [path for path in (spec.output, spec.checkpoint.directory) if path and not _is_inside(path, root)]
        try:
            shutil.rmtree(root)
        except OSError as exc:
            raise ElasticDLError(f"{root}: cannot be removed: {exc}; remove it by hand") from exc
        beyond = f"; what it wrote elsewhere is kept: {', '.join(kept_paths)}" if kept_paths else ""
        return f"{self.name}: deleted, with its logs and the checkpoints in {root}{beyond}"

    def read_journal(self) -> tuple[StoredJournal, JobSpec]:
        from elasticdl.master.runtime.event_log import count_entries
        from elasticdl.master.runtime.replay import StoredJournal

        path = self._directory.journal
        entries = count_entries(self._directory.events)
        try:
            content = path.read_bytes()
        except FileNotFoundError as exc:
            raise SpecError(f"{path} does not exist: no master of this job has begun yet, or it was deleted") from exc
        return StoredJournal(str(path), content, can_be_torn=True, entries=entries), self._directory.load_spec()

    def open_directory(self) -> AbstractContextManager[JobDirectory]:
        return nullcontext(self._directory)


def _is_inside(path: str, root: Path) -> bool:
    return "://" not in path and Path(path).absolute().is_relative_to(root)


class WatchedLocalJob:
    """A job of this machine that is watched, by the process that started its launcher if `launcher_pid` is given."""

    def __init__(self, directory: JobDirectory, launcher_pid: int | None = None) -> None:
        self.directory = directory
        self._launcher_pid = launcher_pid

    @property
    def place(self) -> str:
        return f"in {self.directory.root}"

    def has_failed_to_start(self) -> bool:
        return self._launcher_pid is not None and _has_exited(self._launcher_pid) and not self.directory.result.exists()

    def await_exit(self) -> None:
        """Waits for the launcher, which is the last process of the job to end."""
        if self._launcher_pid is None:
            return
        try:
            descriptor = os.pidfd_open(self._launcher_pid)
        except ProcessLookupError:
            return
        try:
            if select.select([descriptor], [], [], LAUNCHER_EXIT_TIMEOUT_S)[0]:
                os.waitpid(self._launcher_pid, 0)
        finally:
            os.close(descriptor)

    def is_alive(self) -> bool:
        return home.is_starting_or_alive(self.directory)

    def has_started(self) -> bool:
        return self.directory.master.exists()

    def unreachable_reason(self) -> str:
        return ""

    def logs_hint(self) -> str:
        return f"the logs in {self.directory.logs}"

    def open_log(self, worker: str) -> GrowingFile:
        return GrowingFile(self.directory.log_file(worker))

    def kill(self) -> str:
        from elasticdl.jobs import formatting

        kill_job(self.directory)
        resumption = formatting.resume_command(self.directory.root.name, self.directory.load_spec().kind)
        return f"killed. Checkpoints written so far are kept; go on with `{resumption}`"

    @property
    def local_directory(self) -> JobDirectory:
        return self.directory

    def final_status(self) -> JobStatus:
        status = history.status_from_files(self.directory, is_alive=False)
        message = history.add_earlier_run(status, history.read_earlier_run(self.directory))
        return JobStatus.from_message(message, THIS_MACHINE)


def _has_exited(pid: int) -> bool:
    """Whether our own child has ended; it stays waitable."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def kill_job(directory: JobDirectory, reason: str = KILL_REASON) -> None:
    """Kills every process of the job and writes a result that says so."""
    from elasticdl.launcher.local import processes

    processes.kill_processes(directory)
    if not directory.result.exists():
        result = {"phase": "stopped", "reason": reason, "exit_code": STOPPED_EXIT_CODE}
        write_json(directory.result, result)


def current_status(directory: JobDirectory, timeout_s: float) -> pb.JobStatus:
    """The status, from the master if it answers within `timeout_s`, else from the files."""
    if not directory.result.exists() and home.is_alive(directory):
        from elasticdl.rpc.client import MasterClient

        try:
            with MasterClient.connect(directory, timeout_s) as client:
                return history.add_earlier_run(client.status(), history.read_earlier_run(directory))
        except MasterUnreachable:
            # Either it ended this moment, or the master is away; the files know which.
            pass
    is_alive = home.is_alive(directory)
    status = history.status_from_files(directory, is_alive=is_alive)
    if not is_alive:
        _add_leftovers(directory, status)
    return history.add_earlier_run(status, history.read_earlier_run(directory))


def _add_leftovers(directory: JobDirectory, status: pb.JobStatus) -> None:
    """Adds to the reason which processes outlived the job, or its launcher and master."""
    from elasticdl.launcher.local import processes

    if directory.result.exists():
        left = processes.recorded_processes(directory)  # one look at the files: many jobs that are over may be listed
        if left:
            status.reason += (
                f"; {processes.describe_processes(left)} did not end: `elasticdl stop {status.name}` ends what is left"
            )
    elif left := processes.find_replicas(directory):
        status.reason = (
            f"its launcher and its master are gone, and left no result; {processes.describe_processes(left)} "
            "still run. Go on with --resume, which ends them first, with a checkpoint; "
            f"or only end them, with `elasticdl stop {status.name}`"
        )


@contextmanager
def connect_master(directory: JobDirectory) -> Iterator[MasterClient]:
    """Connects to the master. Raises SpecError if the job is over."""
    name = directory.root.name
    queue = home.local_queue()
    if queue.has_job(name) and not home.is_alive(directory):
        from elasticdl.jobs import queueing

        if queueing.is_waiting_in_queue(directory, queueing.scheduling_status(name), queue):
            raise SpecError(f"job {name!r} waits in the queue; see `elasticdl status {name}`")
    result = read_json(directory.result)
    if result is not None:
        raise SpecError(f"job {name!r} is over ({result.get('phase', 'ended')}); see `elasticdl status {name}`")
    if not home.is_alive(directory):
        raise SpecError(f"job {name!r} does not run: its processes are gone; go on with it by --resume")
    from elasticdl.rpc.client import MasterClient

    with MasterClient.connect(directory, MASTER_TIMEOUT_S) as client:
        yield client


LOG_POLL_S = 0.2


def read_logs(directory: JobDirectory, replica: str, follow: bool) -> Iterator[tuple[str, str]]:
    """Writer and line, of one replica or of all; with `follow` until the job is over."""
    tails: dict[Path, GrowingFile] = {}
    while True:
        # Asked before reading: what was written until then will be read.
        is_over = not follow or not home.is_starting_or_alive(directory)
        for path in [directory.log_file(replica)] if replica else sorted(directory.logs.glob("*.log")):
            tail = tails.setdefault(path, GrowingFile(path))
            for line in tail.read_new_lines(is_last=is_over):
                yield path.stem, line
        if is_over:
            return
        time.sleep(LOG_POLL_S)


class GrowingFile:
    """Reads the new lines of a growing file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._rest = b""

    def read_new_lines(self, *, is_last: bool = False) -> Iterator[str]:
        """The complete new lines; with `is_last`, an incomplete one, too."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                new = file.read()
        except FileNotFoundError:
            new = b""
        self._read += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        if is_last and self._rest:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            yield line.decode(errors="replace")
