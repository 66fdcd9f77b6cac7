"""Shared memory of processes that end."""

from __future__ import annotations

import subprocess
import sys

import pytest

from elasticdl.ps.wire.messages import (
    SharedMemoryNotFound,
)
from elasticdl.ps.wire.shared_memory import (
    SharedMemoryHandle,
    SharedMemoryViews,
)


def test_shared_memory_of_a_dead_worker_is_released_and_stays_intact_until_then() -> None:
    code = (
        "import sys; from elasticdl.ps.wire.shared_memory import SharedMemory; import numpy as np\n"
        "memory = SharedMemory.create(); room = memory.allocate(np.arange(2000), np.ones((2000, 4), np.float32), 4)\n"
        "print(memory.handle.encode().decode(), room.offset, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        text, offset = worker.stdout.readline().rsplit(b" ", 1)
        offer, views = SharedMemoryHandle.decode(text), SharedMemoryViews()
        views.open(offer)
        _, rows = views.find(offer.name).arrays(int(offset), 2000, 2000, 4)
        assert views.sweep() == 1
        worker.kill()
        worker.wait()
    assert views.sweep() == 0
    with pytest.raises(SharedMemoryNotFound):
        views.find(offer.name)
    assert (rows == 1.0).all(), "the rows can still be read"
