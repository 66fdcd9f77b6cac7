"""Rows per second of one ps: pull and push with Adagrad, beside TensorFlow's parameter server, and beside the memory.

    python benchmarks/ps_rows.py [--quick] [--repeats N] [--json FILE]

There are one ps process, one worker process, and a table of a million rows of 16 columns. A cycle pulls the rows of U
distinct ids and pushes a gradient for each; the next pull is in flight while a push is applied, as in training and with
the peer. Worker and ps share memory, as they do on one machine; "over the socket" they do not, as between two machines.
The core alone does the same without a connection; the limit is a plain gather and scatter of rows of the same size.
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
PS_ID = PsId("ps-0")
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
    if ALLOCATOR.items() - os.environ.items():  # the environment with which a job starts workers and ps
        os.execve(sys.executable, [sys.executable, __file__, *arguments], {**os.environ, **ALLOCATOR})
    repeats, cycles = (1, 20) if options.quick else (options.repeats, 100)

    rates_by_run: dict[tuple[str, int], list[float]] = {}
    peer = None if options.no_peer else environment.tensorflow()
    for _ in range(repeats):
        for name, measure in RUNS.items():
            for size, rate in measure(cycles).items():
                rates_by_run.setdefault((name, size), []).append(rate)
                print(f"{name:6} U = {size:7,}: {rate:6.2f} M rows/s", file=sys.stderr, flush=True)
        if peer is not None:
            for size, rate in measure_tensorflow(peer, cycles).items():
                rates_by_run.setdefault(("peer", size), []).append(rate)
                print(f"peer   U = {size:7,}: {rate:6.2f} M rows/s", file=sys.stderr, flush=True)
    rows = _rows({key: statistics.median(values) for key, values in rates_by_run.items()})
    table.show(f"Rows of one ps, pulled and pushed ({repeats} repetitions, medians)", rows, notes=[table.machine()])
    if options.json:
        table.write(options.json, rows)
    return 0


def _rows(medians: dict[tuple[str, int], float]) -> list[table.Row]:
    rows = []
    for size in SIZES:
        ours, socket, core_alone, limit = (medians[name, size] for name in RUNS)
        peer = medians.get(("peer", size))
        goal = f"{ours / peer:.1f} of it ≥ {GOAL_PEER:g}" if peer else f"≥ {GOAL_PEER:g} of it"
        is_met = ours >= GOAL_PEER * peer if peer else None
        rows.append(table.Row(f"pull + push, U = {size:,}", "M rows/s", ours, peer, "TensorFlow ps", goal, is_met))
        goal = f"{socket / peer:.1f} of it" if peer else "–"
        name = f"pull + push over the socket, U = {size:,}"
        rows.append(table.Row(name, "M rows/s", socket, peer, "TensorFlow ps", goal, None))
        goal = f"{core_alone / limit:.2f} of it ≥ {GOAL_LIMIT:g}"
        is_met = core_alone >= GOAL_LIMIT * limit
        name = f"the core alone, U = {size:,}"
        rows.append(table.Row(name, "M rows/s", core_alone, limit, "plain gather and scatter", goal, is_met))
    return rows


def batches(size: int) -> list[Ids]:
    random = np.random.default_rng(size)
    return [random.choice(ROWS, size, replace=False) * 7 for _ in range(8)]


def gradients(size: int) -> Floats:
    return np.random.default_rng(1).standard_normal((size, COLUMNS)).astype(np.float32)


def measure_rate(size: int, cycles: int, run: Callable[[int], None]) -> float:
    """Returns million rows per second."""
    run(4)
    started = time.perf_counter()
    run(cycles)
    return size * cycles / (time.perf_counter() - started) / 1e6


# ---- ours


def serve(connection: Connection) -> None:
    state = PsState(PS_ID, seed=1)
    state.set_slot_map(SlotMap.initial([PS_ID]))
    server = PsServer(state, TOKEN, "127.0.0.1", threads=2).start()
    connection.send(server.address)
    connection.recv()


def measure_ps(cycles: int, *, shares: bool = True) -> dict[int, float]:
    own_end, ps_end = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(ps_end,), daemon=True)
    process.start()
    client = PsClient(
        FleetView(SlotMap.initial([PS_ID]), {PS_ID: own_end.recv()}, {}), TOKEN, timeout_s=30.0, shares=shares
    ).open()
    client.declare([SPEC])
    for start in range(0, ROWS, 100_000):
        plan = {"rows": client.plan(np.arange(start, start + 100_000) * 7)}
        client.finish_pull(plan, client.begin_pull(plan))
    rates, numbers = {}, count(1)
    for size in SIZES:
        plans = [{"rows": client.plan(ids)} for ids in batches(size)]
        rates[size] = measure_rate(size, cycles, partial(_train, client, plans, {"rows": gradients(size)}, numbers))
    client.close()
    own_end.send(None)
    process.join()
    return rates


def _train(
    client: PsClient,
    plans: Sequence[dict[str, LookupPlan]],
    sums: dict[str, Floats],
    numbers: Iterator[int],
    cycles: int,
) -> None:
    pulling, pushing = client.begin_pull(plans[0]), list[PendingReplies]()
    for step in range(cycles):
        plan, next_pull = plans[step % len(plans)], client.begin_pull(plans[(step + 1) % len(plans)])
        client.finish_pull(plan, pulling)
        number = next(numbers)
        pushing.append(client.begin_push(plan, sums, sender=1, number=number, rate=0.01, step=step + 1))
        pulling = next_pull
        if len(pushing) > 2:
            client.finish_push(pushing.pop(0))
    for replies in pushing:
        client.finish_push(replies)
    client.finish_pull(plans[cycles % len(plans)], pulling)


def measure_table(cycles: int) -> dict[int, float]:
    table = create_table(SPEC, seed=1)
    table.pull(np.arange(ROWS) * 7, np.empty((ROWS, COLUMNS), np.float32))
    owner = np.zeros(_native.SLOTS, np.uint16)
    rates = {}
    for size in SIZES:
        planned = [_native.plan(ids, owner, 1)[0] for ids in batches(size)]  # as a worker sends them
        rows = np.empty((size, COLUMNS), np.float32)
        rates[size] = measure_rate(size, cycles, partial(_update, table, planned, gradients(size), rows))
    return rates


def _update(table: _native.Table, planned: Sequence[Ids], gradients: Floats, rows: Floats, count: int) -> None:
    for step in range(count):
        ids = planned[step % len(planned)]
        table.pull(ids, rows)
        table.push(ids, gradients, 0.01, step + 1)


def measure_limit(cycles: int) -> dict[int, float]:
    """Measures the limit of one thread: a plain gather of values, then a gather and scatter of values and state."""
    torch.set_num_threads(1)
    memory = torch.zeros(ROWS, 2 * COLUMNS)
    rates = {}
    for size in SIZES:
        batch_indices = [torch.from_numpy(ids // 7) for ids in batches(size)]
        rates[size] = measure_rate(size, cycles, partial(_copy, memory, batch_indices))
    return rates


def _copy(memory: torch.Tensor, batch_indices: Sequence[torch.Tensor], count: int) -> None:
    values = memory[:, :COLUMNS]
    values_out, rows_out = torch.empty(len(batch_indices[0]), COLUMNS), torch.empty(len(batch_indices[0]), 2 * COLUMNS)
    for step in range(count):
        indices = batch_indices[step % len(batch_indices)]
        torch.index_select(values, 0, indices, out=values_out)
        torch.index_select(memory, 0, indices, out=rows_out)
        memory.index_copy_(0, indices, rows_out)


RUNS: dict[str, Callable[[int], dict[int, float]]] = {
    "ours": measure_ps,
    "socket": partial(measure_ps, shares=False),
    "core": measure_table,
    "limit": measure_limit,
}


# ---- the peer


def measure_tensorflow(programs: Path, cycles: int) -> dict[int, float]:
    argv = [str(programs / "python"), "-W", "ignore", str(PEER), str(ROWS), str(COLUMNS), str(cycles), *map(str, SIZES)]
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    finished = subprocess.run(argv, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    rates = [line.split() for line in finished.stdout.splitlines() if line.startswith("RATE")]
    return {int(size): float(rate) for _, size, rate in rates}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
