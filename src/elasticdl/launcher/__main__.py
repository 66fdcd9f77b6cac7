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
from elasticdl.launcher import living
from elasticdl.launcher.child import Child
from elasticdl.launcher.interface import Running
from elasticdl.launcher.issuer import Issuer
from elasticdl.launcher.link import MASTER
from elasticdl.launcher.loop import Loop
from elasticdl.launcher.record import Record, hold, start_ticks
from elasticdl.launcher.restarts import Restarts
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
    parser.add_argument("--master", default=MASTER, help="the module that is run as the master")
    arguments = parser.parse_args(argv)

    descriptors.allow_all()
    directory = JobDirectory(arguments.directory.absolute())
    log.configure("launcher")
    _close_others({arguments.attached_fd, arguments.master_fd})
    # A successor may be here a moment before its predecessor is quite dead.
    with hold(directory, wait=arguments.adopt):
        if directory.run != arguments.run:
            logging.getLogger("elasticdl").error(
                "run %d of this job is over: run %d has begun since", arguments.run, directory.run
            )
            return PermanentError.exit_code
        if arguments.stop and directory.result.exists():
            return 0  # another one was faster
        record = _record(directory, is_adopting=arguments.adopt, is_attached=arguments.attached_fd is not None)
        loop = Loop(
            directory,
            record,
            run=arguments.run,
            master=arguments.master,
            clock=WallClock(),
            restarts=Restarts(),
            issuer=Issuer.open(directory),
        )
        loop.stop_reason = arguments.stop
        loop.watch_attached(_told_to_end())
        if arguments.attached_fd is not None:
            loop.watch_attached(arguments.attached_fd)
        elif (attached := _attached(record)) is not None:
            loop.watch_attached(attached)
        if arguments.master_fd is None:
            _kill_strays(directory, arguments.run)
        if arguments.adopt:
            loop.adopt_replicas()
        if arguments.master_fd is not None:
            # From the master itself: the dead launcher may not have come to write it down.
            record.master = _running("master", arguments.master_pid)
            loop.adopt_master(socket.socket(fileno=arguments.master_fd))
        return loop.run()


def _record(directory: JobDirectory, *, is_adopting: bool, is_attached: bool) -> Record:
    me = _running("launcher", os.getpid())
    if is_adopting and (record := Record.load(directory.launcher)):
        record.launcher = me
        return record
    # Whoever started us holds the other end of the pipe: a launcher after us can watch it by its pid.
    return Record(me, attached=_running("command", os.getppid()) if is_attached else None)


def _running(name: str, pid: int) -> Running:
    return Running(name, pid, time.time(), start_ticks(pid) or 0)


def _attached(record: Record) -> int | None:
    """A descriptor that is readable once the command line of a dead launcher's record is gone."""
    if record.attached is None or record.detached:
        return None
    if child := Child.adopt(record.attached):
        return child.fileno()
    record.detached = True
    return None


def _told_to_end() -> int:
    """A descriptor that becomes readable on SIGTERM."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return reading


def _kill_strays(directory: JobDirectory, run: int) -> None:
    """A master that no launcher wrote down: its journal has all it knows, and ours goes on from there."""
    for running in living.find_all(directory, run):
        if running.replica == living.MASTER and (child := Child.adopt(running)):
            child.signal(signal.SIGKILL)
            child.forget()


def _close_others(kept: set[int | None]) -> None:
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
