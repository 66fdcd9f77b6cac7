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


PERIOD_S = 0.1  # of a processor's quota, as Kubernetes has it


@contextmanager
def fleet(count: int, threads: int, share: float = 1.0) -> Iterator[FleetView]:
    """So many ps, which hold all slots between them; each may use this share of a processor's time."""
    names = [PsId(f"ps-{number}") for number in range(count)]
    os.environ |= ALLOCATOR  # as a job starts them
    pipes, addresses, pids = [], {}, []
    for name in names:
        here, there = SPAWN.Pipe()
        process = SPAWN.Process(target=_serve, args=(name, names, threads, there), daemon=True)
        process.start()
        pipes.append(here)
        pids.append(process.pid)
    for name, pipe in zip(names, pipes, strict=True):
        addresses[name] = pipe.recv()
    is_over = threading.Event()
    if share < 1.0:
        for pid in pids:
            threading.Thread(target=_throttle, args=(pid, share, is_over), daemon=True).start()
    yield FleetView(SlotMap.initial(names), addresses, {})
    is_over.set()
    for pipe in pipes:
        pipe.send(None)


def _throttle(pid: int, share: float, is_over: threading.Event) -> None:
    """What a limit of a container does: so much of each period, then a halt until the next."""
    while not is_over.wait(share * PERIOD_S):
        os.kill(pid, signal.SIGSTOP)
        is_over.wait((1 - share) * PERIOD_S)
        os.kill(pid, signal.SIGCONT)


def _serve(name: PsId, names: Sequence[PsId], threads: int, connection: Connection) -> None:
    holdings = PsState(name, seed=1)
    holdings.set_slot_map(SlotMap.initial(names))
    server = PsServer(holdings, TOKEN, "127.0.0.1", threads=threads).start()
    connection.send(server.address)
    connection.recv()
    server.close()
