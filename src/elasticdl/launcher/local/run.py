"""One launcher from its arguments to the job's end: it takes the job's lock, adopts what lives, and runs the loop."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import time
from functools import partial

from elasticdl import log
from elasticdl.clock import WallClock
from elasticdl.errors import PermanentError
from elasticdl.launcher.certificate_manager import CertificateManager
from elasticdl.launcher.interface import RunningProcess
from elasticdl.launcher.local import processes
from elasticdl.launcher.local.fork_client import ForkServer, close_inherited, start_fork_server
from elasticdl.launcher.local.loop import LauncherLoop
from elasticdl.launcher.local.record import LauncherRecord, lock_job
from elasticdl.launcher.local.restart_policy import RestartPolicy
from elasticdl.launcher.local.watched_process import WatchedProcess, start_ticks
from elasticdl.spec.directory import JobDirectory
from elasticdl.spec.job import StartMethod


def run_launcher(arguments: argparse.Namespace, server: ForkServer | None) -> int:
    """Keep the job's processes until it is over; its exit code. `server` was started before there was a job."""
    directory = JobDirectory(arguments.directory.absolute())
    log.configure_logging("launcher")
    if server is None:
        close_inherited({arguments.attached_fd, arguments.master_fd})
    # A successor may be here a moment before its predecessor is quite dead.
    with lock_job(directory, wait=arguments.adopt):
        if directory.run_number != arguments.run:
            logging.getLogger("elasticdl").error(
                "run %d of this job is over: run %d has begun since", arguments.run, directory.run_number
            )
            return PermanentError.exit_code
        if arguments.stop and directory.result.exists():
            return 0  # another one was faster
        record = _load_record(directory, is_adopting=arguments.adopt, is_attached=arguments.attached_fd is not None)
        loop = LauncherLoop(
            directory,
            record,
            run=arguments.run,
            master=arguments.master,
            clock=WallClock(),
            restarts=RestartPolicy(),
            issuer=CertificateManager.open(directory),
        )
        loop.stop_reason = arguments.stop
        _fork_replicas(loop, directory, server)
        loop.watch_attached(_watch_terminate())
        if arguments.attached_fd is not None:
            loop.watch_attached(arguments.attached_fd)
        elif (attached := _watch_command(record)) is not None:
            loop.watch_attached(attached)
        if arguments.master_fd is None:
            _kill_strays(directory, arguments.run)
        if arguments.adopt:
            loop.adopt_replicas()
        if arguments.master_fd is not None:
            # From the master itself: the dead launcher may not have come to write it down.
            record.master = _describe_process("master", arguments.master_pid)
            loop.adopt_master(socket.socket(fileno=arguments.master_fd))
        return loop.run()


def _fork_replicas(loop: LauncherLoop, directory: JobDirectory, server: ForkServer | None) -> None:
    """Fork workers and ps where the job does not say otherwise."""
    spec = directory.load_spec()
    # The agent of a script that knows nothing of us needs no torch, and a job that stops needs no workers.
    is_forking = spec.workers.start_method is not StartMethod.SPAWN and not spec.restarts_script
    capability = spec.workers.cpu_capability
    if server is not None and (capability or not is_forking):
        server.close()
        server = None
    if is_forking and not loop.stop_reason:
        loop.fork_replicas(server, partial(start_fork_server, capability))


def _load_record(directory: JobDirectory, *, is_adopting: bool, is_attached: bool) -> LauncherRecord:
    me = _describe_process("launcher", os.getpid())
    if is_adopting and (record := LauncherRecord.load(directory.launcher)):
        record.launcher = me
        return record
    # Whoever started us holds the other end of the pipe: a launcher after us can watch it by its pid.
    return LauncherRecord(me, attached=_describe_process("command", os.getppid()) if is_attached else None)


def _describe_process(name: str, pid: int) -> RunningProcess:
    return RunningProcess(name, pid, time.time(), start_ticks(pid) or 0)


def _watch_command(record: LauncherRecord) -> int | None:
    """A descriptor that is readable once the command line of a dead launcher's record is gone."""
    if record.attached is None or record.is_detached:
        return None
    if child := WatchedProcess.adopt(record.attached):
        return child.fileno()
    record.is_detached = True
    return None


def _watch_terminate() -> int:
    """A descriptor that becomes readable on SIGTERM."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGTERM, lambda *_: None)
    return reading


def _kill_strays(directory: JobDirectory, run: int) -> None:
    """A master that no launcher wrote down: its journal has all it knows, and ours goes on from there."""
    for running in processes.find_processes(directory, run):
        if running.replica == processes.MASTER and (child := WatchedProcess.adopt(running)):
            child.signal(signal.SIGKILL)
            child.stop_watching()
