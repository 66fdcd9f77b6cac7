"""Rows per second of one ps: pull and push with Adagrad, beside TensorFlow's parameter server, and beside the memory.

    python benchmarks/ps_rows.py [--quick] [--repeats N] [--json FILE]

One ps process, one worker process, a table of a million rows of 16 columns. A cycle pulls the rows of U distinct
ids and pushes a gradient for each; the next pull is on its way while a push is applied, as in training and as at the
peer. Worker and ps share memory, as they do on one machine; "over the socket" they do not, as between two machines.
The core alone does the same without a wire; the limit is a plain gather and scatter of rows of the same size.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import table
import torch
from peers import environment

from elasticdl.launcher.replica_environ import ALLOCATOR
from elasticdl.ps import _native
from elasticdl.ps.client.lookup_plan import LookupPlan
from elasticdl.ps.client.pending import PendingReplies
from elasticdl.ps.client.ps_client import PsClient
from elasticdl.ps.fleet import FleetView
from elasticdl.ps.server.ps_server import PsServer
from elasticdl.ps.slots import SlotMap
from elasticdl.ps.tables.optimizer import Optimizer
from elasticdl.ps.tables.state import PsState
from elasticdl.ps.tables.table import TableSpec, create_table
from elasticdl.ps.wire.messages import Floats, Ids
from elasticdl.spec import PsId

ROWS, COLUMNS = 1_000_000, 16
SIZES = (8_268, 23_616, 100_000)
GOAL_PEER, GOAL_LIMIT = 5.0, 0.5
SPEC = TableSpec(name="rows", columns=COLUMNS, optimizer=Optimizer(rule="adagrad", initial_accumulator=0.1))
PS = PsId("ps-0")
TOKEN = "benchmark"
PEER = Path(__file__).parent / "peers" / "tensorflow_rows.py"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short repetition")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--no-peer", action="store_true", help="without TensorFlow, which is installed on the first run"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    if ALLOCATOR.items() - os.environ.items():  # as a worker and a ps of a job are started
        os.execve(sys.executable, [sys.executable, __file__, *arguments], {**os.environ, **ALLOCATOR})
    repeats, cycles = (1, 20) if options.quick else (options.repeats, 100)

    measured: dict[tuple[str, int], list[float]] = {}
    peer = None if options.no_peer else environment.tensorflow()
    for _ in range(repeats):
        for name, measure in RUNS.items():
            for size, rate in measure(cycles).items():
                measured.setdefault((name, size), []).append(rate)
                print(f"{name:6} U = {size:7,}: {rate:6.2f} M rows/s", file=sys.stderr, flush=True)
        if peer is not None:
            for size, rate in tensorflow(peer, cycles).items():
                measured.setdefault(("peer", size), []).append(rate)
                print(f"peer   U = {size:7,}: {rate:6.2f} M rows/s", file=sys.stderr, flush=True)
    rows = _rows({key: statistics.median(values) for key, values in measured.items()})
    table.show(f"Rows of one ps, pulled and pushed ({repeats} repetitions, medians)", rows, notes=[table.machine()])
    if options.json:
        table.write(options.json, rows)
    return 0


def _rows(median: dict[tuple[str, int], float]) -> list[table.Row]:
    rows = []
    for size in SIZES:
        ours, socket, core_alone, most = (median[name, size] for name in RUNS)
        theirs = median.get(("peer", size))
        goal = f"{ours / theirs:.1f} of it ≥ {GOAL_PEER:g}" if theirs else f"≥ {GOAL_PEER:g} of it"
        met = ours >= GOAL_PEER * theirs if theirs else None
        rows.append(table.Row(f"pull + push, U = {size:,}", "M rows/s", ours, theirs, "TensorFlow ps", goal, met))
        goal = f"{socket / theirs:.1f} of it" if theirs else "–"
        name = f"pull + push over the socket, U = {size:,}"
        rows.append(table.Row(name, "M rows/s", socket, theirs, "TensorFlow ps", goal, None))
        goal = f"{core_alone / most:.2f} of it ≥ {GOAL_LIMIT:g}"
        met = core_alone >= GOAL_LIMIT * most
        name = f"the core alone, U = {size:,}"
        rows.append(table.Row(name, "M rows/s", core_alone, most, "plain gather and scatter", goal, met))
    return rows


def batches(size: int) -> list[Ids]:
    random = np.random.default_rng(size)
    return [random.choice(ROWS, size, replace=False) * 7 for _ in range(8)]


def gradients(size: int) -> Floats:
    return np.random.default_rng(1).standard_normal((size, COLUMNS)).astype(np.float32)


def timed(size: int, cycles: int, run: Callable[[int], None]) -> float:
    """Million rows per second."""
    run(4)
    started = time.perf_counter()
    run(cycles)
    return size * cycles / (time.perf_counter() - started) / 1e6


# ---- ours


def serve(connection: Connection) -> None:
    holdings = PsState(PS, seed=1)
    holdings.set_slot_map(SlotMap.initial([PS]))
    server = PsServer(holdings, TOKEN, "127.0.0.1", threads=2).start()
    connection.send(server.address)
    connection.recv()


def wire(cycles: int, *, shares: bool = True) -> dict[int, float]:
    here, there = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    process.start()
    client = PsClient(
        FleetView(SlotMap.initial([PS]), {PS: here.recv()}, {}), TOKEN, timeout_s=30.0, shares=shares
    ).open()
    client.declare([SPEC])
    for start in range(0, ROWS, 100_000):
        plan = {"rows": client.plan(np.arange(start, start + 100_000) * 7)}
        client.finish_pull(plan, client.begin_pull(plan))
    found, numbers = {}, count(1)
    for size in SIZES:
        plans = [{"rows": client.plan(ids)} for ids in batches(size)]
        found[size] = timed(size, cycles, partial(_train, client, plans, {"rows": gradients(size)}, numbers))
    client.close()
    here.send(None)
    process.join()
    return found


def _train(
    client: PsClient,
    plans: Sequence[dict[str, LookupPlan]],
    sums: dict[str, Floats],
    numbers: Iterator[int],
    cycles: int,
) -> None:
    pulling, pushing = client.begin_pull(plans[0]), list[PendingReplies]()
    for step in range(cycles):
        plan, following = plans[step % len(plans)], client.begin_pull(plans[(step + 1) % len(plans)])
        client.finish_pull(plan, pulling)
        number = next(numbers)
        pushing.append(client.begin_push(plan, sums, sender=1, number=number, rate=0.01, step=step + 1))
        pulling = following
        if len(pushing) > 2:
            client.finish_push(pushing.pop(0))
    for one in pushing:
        client.finish_push(one)
    client.finish_pull(plans[cycles % len(plans)], pulling)


def core(cycles: int) -> dict[int, float]:
    made = create_table(SPEC, seed=1)
    made.pull(np.arange(ROWS) * 7, np.empty((ROWS, COLUMNS), np.float32))
    owner = np.zeros(_native.SLOTS, np.uint16)
    found = {}
    for size in SIZES:
        planned = [_native.plan(ids, owner, 1)[0] for ids in batches(size)]  # as a worker sends them
        rows = np.empty((size, COLUMNS), np.float32)
        found[size] = timed(size, cycles, partial(_update, made, planned, gradients(size), rows))
    return found


def _update(made: _native.Table, planned: Sequence[Ids], sums: Floats, rows: Floats, count: int) -> None:
    for step in range(count):
        ids = planned[step % len(planned)]
        made.pull(ids, rows)
        made.push(ids, sums, 0.01, step + 1)


def limit(cycles: int) -> dict[int, float]:
    """What nobody can beat with one thread: read the values, then read and write values and state, in any order."""
    torch.set_num_threads(1)
    memory = torch.zeros(ROWS, 2 * COLUMNS)
    found = {}
    for size in SIZES:
        places = [torch.from_numpy(ids // 7) for ids in batches(size)]
        found[size] = timed(size, cycles, partial(_copy, memory, places))
    return found


def _copy(memory: torch.Tensor, places: Sequence[torch.Tensor], count: int) -> None:
    values = memory[:, :COLUMNS]
    out, both = torch.empty(len(places[0]), COLUMNS), torch.empty(len(places[0]), 2 * COLUMNS)
    for step in range(count):
        place = places[step % len(places)]
        torch.index_select(values, 0, place, out=out)
        torch.index_select(memory, 0, place, out=both)
        memory.index_copy_(0, place, both)


RUNS: dict[str, Callable[[int], dict[int, float]]] = {
    "ours": wire,
    "socket": partial(wire, shares=False),
    "core": core,
    "limit": limit,
}


# ---- the peer


def tensorflow(programs: Path, cycles: int) -> dict[int, float]:
    argv = [str(programs / "python"), "-W", "ignore", str(PEER), str(ROWS), str(COLUMNS), str(cycles), *map(str, SIZES)]
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(argv, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    rates = [line.split() for line in done.stdout.splitlines() if line.startswith("RATE")]
    return {int(size): float(rate) for _, size, rate in rates}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
