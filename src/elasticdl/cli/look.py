"""How a job stands right now: from its master where it has one, else from its files."""

from __future__ import annotations

from elasticdl.cli import history, home, resumed
from elasticdl.errors import MasterUnreachable
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec.directory import JobDirectory


def look(directory: JobDirectory, timeout_s: float) -> pb.JobStatus:
    """Waits up to `timeout_s` for a master that is being restarted."""
    if not directory.result.exists() and home.is_alive(directory):
        from elasticdl.rpc.client import MasterClient

        try:
            with MasterClient.connect(directory, timeout_s) as client:
                return resumed.with_earlier(client.status(), resumed.read_earlier(directory))
        except MasterUnreachable:
            # Either it ended this moment, or the master is away; the files know which.
            pass
    is_alive = home.is_alive(directory)
    told = history.status(directory, is_alive=is_alive)
    if not is_alive:
        _tell_leftovers(directory, told)
    return resumed.with_earlier(told, resumed.read_earlier(directory))


def _tell_leftovers(directory: JobDirectory, told: pb.JobStatus) -> None:
    """Say which processes outlived the job, or launcher and master."""
    from elasticdl.launcher import living

    if directory.result.exists():
        left = living.recorded(directory)  # one look at the files: many jobs that are over may be listed
        if left:
            told.reason += f"; {living.sentence(left)} did not end: `elasticdl stop {told.name}` ends what is left"
    elif left := living.find_replicas(directory):
        told.reason = (
            f"its launcher and its master are gone, and left no result; {living.sentence(left)} still run. "
            "Go on with --resume, which ends them first, with a checkpoint; "
            f"or only end them, with `elasticdl stop {told.name}`"
        )
