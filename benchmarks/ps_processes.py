"""Parameter servers in processes of their own, without a job around them, for benchmarks of the ps alone."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection

from elasticdl.launcher.replica_environ import ALLOCATOR
from elasticdl.ps.fleet import FleetView
from elasticdl.ps.server.ps_server import PsServer
from elasticdl.ps.slots import SlotMap
from elasticdl.ps.tables.state import PsState
from elasticdl.spec import PsId

TOKEN = "benchmark"
SPAWN = multiprocessing.get_context("spawn")


PERIOD_S = 0.1  # of a CPU quota, as in Kubernetes


@contextmanager
def run_fleet(count: int, threads: int, share: float = 1.0) -> Iterator[FleetView]:
    """Runs `count` ps that share all slots; each may use `share` of a processor's time."""
    names = [PsId(f"ps-{number}") for number in range(count)]
    os.environ |= ALLOCATOR  # as a job starts them
    pipes, addresses, pids = [], {}, []
    for name in names:
        own_end, ps_end = SPAWN.Pipe()
        process = SPAWN.Process(target=_serve, args=(name, names, threads, ps_end), daemon=True)
        process.start()
        pipes.append(own_end)
        pids.append(process.pid)
    for name, pipe in zip(names, pipes, strict=True):
        addresses[name] = pipe.recv()
    stopped = threading.Event()
    if share < 1.0:
        for pid in pids:
            threading.Thread(target=_throttle, args=(pid, share, stopped), daemon=True).start()
    yield FleetView(SlotMap.initial(names), addresses, {})
    stopped.set()
    for pipe in pipes:
        pipe.send(None)


def _throttle(pid: int, share: float, stopped: threading.Event) -> None:
    """Acts as the CPU limit of a container: the process runs for its share of each period, and is then stopped."""
    while not stopped.wait(share * PERIOD_S):
        os.kill(pid, signal.SIGSTOP)
        stopped.wait((1 - share) * PERIOD_S)
        os.kill(pid, signal.SIGCONT)


def _serve(name: PsId, names: Sequence[PsId], threads: int, connection: Connection) -> None:
    state = PsState(name, seed=1)
    state.set_slot_map(SlotMap.initial(names))
    server = PsServer(state, TOKEN, "127.0.0.1", threads=threads).start()
    connection.send(server.address)
    connection.recv()
    server.close()
