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
    told = history.status(directory, is_alive=home.is_alive(directory))
    return resumed.with_earlier(told, resumed.read_earlier(directory))
