"""`python -m elasticdl.launcher JOB_DIRECTORY`: run the processes of one local job.

Started by `processes.start_launcher` and `processes.replace_launcher`, or, before there is a job, by
`prepared.prepare_launcher`; not by hand.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
from pathlib import Path

from elasticdl import descriptors
from elasticdl.launcher.local.fork_client import close_inherited, start_fork_server
from elasticdl.launcher.local.fork_server import ProcessTitle
from elasticdl.launcher.local.prepared import PREPARED_OPTION, receive_job


def main(argv: list[str]) -> int:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # our children inherit this
    descriptors.raise_descriptor_limit()
    if argv[:1] == [PREPARED_OPTION]:
        return _run_prepared(socket.socket(fileno=int(argv[1])))
    from elasticdl.launcher.local.run import run_launcher

    return run_launcher(_parse_arguments(argv), None)


def _parse_arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m elasticdl.launcher", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--attached-fd", type=int)
    parser.add_argument("--run", type=int, required=True, help="number of the job's run")
    parser.add_argument("--adopt", action="store_true", help="take over from a launcher that died")
    parser.add_argument("--stop", metavar="REASON", default="", help="stop the job, with a checkpoint")
    parser.add_argument("--master-fd", type=int, help="our end of the socketpair to the running master")
    parser.add_argument("--master-pid", type=int)
    parser.add_argument("--master", default="elasticdl.master", help="the module to run as the master")
    return parser.parse_args(argv)


def _run_prepared(starter: socket.socket) -> int:
    """Start the fork server at once; then run the job that the starter describes, if it does."""
    starter.set_inheritable(False)
    close_inherited({starter.fileno()})
    title = ProcessTitle.locate()
    try:
        server = start_fork_server("")
    except OSError:
        server = None
    from elasticdl.launcher.local.run import run_launcher  # imported while waiting for the job

    job = receive_job(starter)
    starter.close()
    if job is None:
        if server is not None:
            server.close()
        return 0
    argv, log, attached_fd = job
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    title.write(argv, {})
    arguments = _parse_arguments(argv[4:])
    if attached_fd is not None:
        os.set_inheritable(attached_fd, False)
        arguments.attached_fd = attached_fd
    return run_launcher(arguments, server)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
