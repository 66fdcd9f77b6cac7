"""Runs a launcher from its arguments to the job's end: locks the job, adopts living processes, and runs the loop."""

from __future__ import annotations

import argparse
import logging
import os
import selectors
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
from elasticdl.launcher.local.oom import OomDetector
from elasticdl.launcher.local.record import LauncherRecord, lock_job
from elasticdl.launcher.local.restart_policy import RestartPolicy
from elasticdl.launcher.local.watched_process import WatchedProcess, start_ticks
from elasticdl.launcher.replica_environ import inherited_environ
from elasticdl.spec.directory import JobDirectory
from elasticdl.spec.job import StartMethod


def run_launcher(arguments: argparse.Namespace, server: ForkServer | None) -> int:
    """Run the job's processes until it is over; returns its exit code. `server` may have been started before."""
    directory = JobDirectory(arguments.directory.absolute())
    log.configure_logging("launcher")
    if server is None:
        close_inherited({arguments.attached_fd, arguments.master_fd})
    # A new launcher may get here a moment before the previous one is quite dead.
    with lock_job(directory, wait=arguments.adopt):
        if directory.run_number != arguments.run:
            logging.getLogger("elasticdl").error(
                "run %d of this job is over: run %d has begun since", arguments.run, directory.run_number
            )
            return PermanentError.exit_code
        if arguments.stop and directory.result.exists():
            return 0  # another launcher was faster
        record = _load_record(directory, is_adopting=arguments.adopt, is_attached=arguments.attached_fd is not None)
        with selectors.DefaultSelector() as selector, OomDetector() as oom:
            loop = LauncherLoop(
                directory,
                record,
                run=arguments.run,
                master_module=arguments.master,
                environ=inherited_environ(os.environ),
                clock=WallClock(),
                selector=selector,
                oom=oom,
                restart_policy=RestartPolicy(),
                certificates=CertificateManager.open(directory),
                stop_reason=arguments.stop,
            )
            _use_fork_server(loop, directory, server, is_stopping=bool(arguments.stop))
            _watch_and_adopt(loop, record, directory, arguments)
            return loop.run()


def _watch_and_adopt(
    loop: LauncherLoop, record: LauncherRecord, directory: JobDirectory, arguments: argparse.Namespace
) -> None:
    """Watch what stops the job, and adopt what a dead launcher left."""
    loop.watch_attached(_sigterm_descriptor())
    if arguments.attached_fd is not None:
        loop.watch_attached(arguments.attached_fd)
    elif (attached_fd := _attached_descriptor(record)) is not None:
        loop.watch_attached(attached_fd)
    if arguments.master_fd is None:
        _kill_stray_masters(directory, arguments.run)
    if arguments.adopt:
        loop.adopt_replicas()
    if arguments.master_fd is not None:
        # From the master's own arguments: the dead launcher may not have recorded it.
        record.master = _describe_process("master", arguments.master_pid)
        loop.adopt_master(socket.socket(fileno=arguments.master_fd))


def _use_fork_server(
    loop: LauncherLoop, directory: JobDirectory, server: ForkServer | None, *, is_stopping: bool
) -> None:
    """Make the loop fork workers and ps, unless the job's spec prevents it."""
    spec = directory.load_spec()
    # The agent of an unchanged script needs no torch, and a job that stops needs no workers.
    is_forking = spec.workers.start_method is not StartMethod.SPAWN and not spec.restarts_script
    capability = spec.workers.cpu_capability
    if server is not None and (capability or not is_forking):
        server.close()
        server = None
    if is_forking and not is_stopping:
        loop.fork_replicas(server, partial(start_fork_server, capability))


def _load_record(directory: JobDirectory, *, is_adopting: bool, is_attached: bool) -> LauncherRecord:
    launcher = _describe_process("launcher", os.getpid())
    if is_adopting and (record := LauncherRecord.load(directory.launcher)):
        record.launcher = launcher
        return record
    # Our parent holds the other end of the pipe: the next launcher can watch it by its pid.
    return LauncherRecord(launcher, attached=_describe_process("command", os.getppid()) if is_attached else None)


def _describe_process(name: str, pid: int) -> RunningProcess:
    return RunningProcess(name, pid, time.time(), start_ticks(pid) or 0)


def _attached_descriptor(record: LauncherRecord) -> int | None:
    """A descriptor that becomes readable when the recorded command line ends; None if there is none."""
    if record.attached is None or record.is_detached:
        return None
    if child := WatchedProcess.adopt(record.attached):
        return child.fileno()
    record.is_detached = True
    return None


def _sigterm_descriptor() -> int:
    """A descriptor that becomes readable on SIGTERM."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGTERM, lambda *_: None)
    return reading


def _kill_stray_masters(directory: JobDirectory, run: int) -> None:
    """Kill masters that no launcher recorded; the next master continues from their journal."""
    for running in processes.find_processes(directory, run):
        if running.replica == processes.MASTER and (child := WatchedProcess.adopt(running)):
            child.signal(signal.SIGKILL)
            child.stop_watching()
