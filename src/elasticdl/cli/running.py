"""The master of a job that must be running."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from elasticdl.cli import home
from elasticdl.errors import SpecError
from elasticdl.spec.directory import JobDirectory, read_json

if TYPE_CHECKING:
    from elasticdl.rpc.client import MasterClient

REACH_S = 15.0  # a master that was killed this moment is back within a few seconds


@contextmanager
def client_of(directory: JobDirectory) -> Iterator[MasterClient]:
    """Connected to the master; an error that says so if the job is over."""
    name = directory.root.name
    queue = home.queue()
    if queue.has(name) and not home.is_alive(directory):
        from elasticdl.cli import queued

        if queued.is_waiting(directory, queued.standing(name), queue):
            raise SpecError(f"job {name!r} waits in the queue; see `elasticdl status {name}`")
    result = read_json(directory.result)
    if result is not None:
        raise SpecError(f"job {name!r} is over ({result.get('phase', 'ended')}); see `elasticdl status {name}`")
    if not home.is_alive(directory):
        raise SpecError(f"job {name!r} does not run: its processes are gone; go on with it by --resume")
    from elasticdl.rpc.client import MasterClient

    with MasterClient.connect(directory, REACH_S) as client:
        yield client
