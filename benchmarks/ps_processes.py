"""Parameter servers in processes of their own, without a job around them, for benchmarks of the ps alone."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection

from elasticdl.ps.fleet import Fleet
from elasticdl.ps.holdings import Holdings
from elasticdl.ps.server import Server
from elasticdl.ps.slots import SlotMap
from elasticdl.spec import PsId
from elasticdl.spec.env import ALLOCATOR

TOKEN = "benchmark"
SPAWN = multiprocessing.get_context("spawn")


@contextmanager
def fleet(count: int, threads: int) -> Iterator[Fleet]:
    """So many ps, which hold all slots between them."""
    names = [PsId(f"ps-{number}") for number in range(count)]
    os.environ |= ALLOCATOR  # as a job starts them
    pipes, addresses = [], {}
    for name in names:
        here, there = SPAWN.Pipe()
        SPAWN.Process(target=_serve, args=(name, names, threads, there), daemon=True).start()
        pipes.append(here)
    for name, pipe in zip(names, pipes, strict=True):
        addresses[name] = pipe.recv()
    yield Fleet(SlotMap.first(names), addresses, {})
    for pipe in pipes:
        pipe.send(None)


def _serve(name: PsId, names: Sequence[PsId], threads: int, connection: Connection) -> None:
    holdings = Holdings(name, seed=1)
    holdings.set_map(SlotMap.first(names))
    server = Server(holdings, TOKEN, "127.0.0.1", threads=threads)
    connection.send(server.address)
    connection.recv()
