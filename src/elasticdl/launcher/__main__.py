"""`python -m elasticdl.launcher JOB_DIRECTORY`: keep the processes of one local job.

Started by `process.start` and `process.adopt`, not by hand.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

from elasticdl import descriptors, log
from elasticdl.clock import WallClock
from elasticdl.errors import PermanentError
from elasticdl.launcher.certificate_manager import CertificateManager
from elasticdl.launcher.interface import RunningProcess
from elasticdl.launcher.local import processes
from elasticdl.launcher.local.loop import LauncherLoop
from elasticdl.launcher.local.master_process import MASTER_MODULE
from elasticdl.launcher.local.record import LauncherRecord, lock_job, start_ticks
from elasticdl.launcher.local.restart_policy import RestartPolicy
from elasticdl.launcher.local.watched_process import WatchedProcess
from elasticdl.spec.directory import JobDirectory


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m elasticdl.launcher", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--attached-fd", type=int)
    parser.add_argument("--run", type=int, required=True, help="number of the job's run that is to be kept going")
    parser.add_argument("--adopt", action="store_true", help="take over from a launcher that died")
    parser.add_argument("--stop", metavar="REASON", default="", help="have the job stopped, with a checkpoint")
    parser.add_argument("--master-fd", type=int, help="our end of the socketpair of the living master")
    parser.add_argument("--master-pid", type=int)
    parser.add_argument("--master", default=MASTER_MODULE, help="the module that is run as the master")
    arguments = parser.parse_args(argv)

    descriptors.raise_descriptor_limit()
    directory = JobDirectory(arguments.directory.absolute())
    log.configure_logging("launcher")
    _close_inherited({arguments.attached_fd, arguments.master_fd})
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
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return reading


def _kill_strays(directory: JobDirectory, run: int) -> None:
    """A master that no launcher wrote down: its journal has all it knows, and ours goes on from there."""
    for running in processes.find_processes(directory, run):
        if running.replica == processes.MASTER and (child := WatchedProcess.adopt(running)):
            child.signal(signal.SIGKILL)
            child.stop_watching()


def _close_inherited(kept: set[int | None]) -> None:
    """Close whatever the starter let slip in; nothing of it may reach a replica or outlive its owner."""
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2 and descriptor not in kept:
            with suppress(OSError):
                os.close(descriptor)
    for passed in kept:
        if passed is not None:
            os.set_inheritable(passed, False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
