"""Memory of a ps: bytes per row over the payload, and the time of a pull, against the number of rows.

    python benchmarks/ps_memory.py [--quick] [--json FILE]

The payload of a row is its values and the state of its optimizer: 16 columns with Adagrad, 128 bytes. Measured is how
much the process grows, not what the table says of itself. The peer is TensorFlow's hash table, rows of the same size.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import table
from peers import environment

from elasticdl.ps.tables.optimizer import Optimizer
from elasticdl.ps.tables.table import TableSpec, create_table

COLUMNS, PAYLOAD = 16, 128
SIZES, QUICK = (100_000, 1_000_000, 10_000_000), (100_000, 1_000_000)
PULLED, PULLS = 23_616, 30
GOAL = 1.4
PEER = Path(__file__).parent / "peers" / "tensorflow_memory.py"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="without the largest table")
    parser.add_argument(
        "--no-peer", action="store_true", help="without TensorFlow, which is installed on the first run"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        measure(options.measure)
        return 0
    peer = None if options.no_peer else environment.tensorflow()
    rows = []
    for size in QUICK if options.quick else SIZES:
        ours = _run([sys.executable, __file__, "--measure", str(size)])
        theirs = (
            _run([peer / "python", "-W", "ignore", PEER, str(size), str(PAYLOAD // 4), str(PULLED)]) if peer else None
        )
        print(f"{size:,} rows: ours {ours}, peer {theirs}", file=sys.stderr, flush=True)
        over = ours[0] / size / PAYLOAD
        name, their_name = f"{size:,} rows", "TensorFlow's hash table"
        their_over = theirs[0] / size / PAYLOAD if theirs else None
        measured = f"bytes per row over the payload, {name}"
        rows.append(table.Row(measured, "×", over, their_over, their_name, f"≤ {GOAL:g}", over <= GOAL))
        their_pull = theirs[1] if theirs else None
        rows.append(table.Row(f"pull of {PULLED:,} rows, {name}", "ms", ours[1], their_pull, their_name))
    table.show("Memory of a ps", rows, notes=[table.machine()])
    if options.json:
        table.write(options.json, rows)
    return 0


def _run(argv: Sequence[object]) -> tuple[float, float]:
    """Bytes, and milliseconds of a pull: each table has a process of its own."""
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([str(one) for one in argv], env=environ, stdout=subprocess.PIPE, text=True, check=True)
    grown, pull_ms = done.stdout.split()[-2:]
    return float(grown), float(pull_ms)


def measure(size: int) -> None:
    spec = TableSpec(name="rows", columns=COLUMNS, optimizer=Optimizer(rule="adagrad"))
    made, out = create_table(spec, seed=1), np.empty((100_000, COLUMNS), np.float32)
    out[:] = 0
    before = resident()
    for start in range(0, size, 100_000):
        made.pull(np.arange(start, start + 100_000) * 7, out)
    grown = resident() - before
    random = np.random.default_rng(0)
    took = []
    for _ in range(PULLS):
        ids = random.integers(0, size, PULLED) * 7
        started = time.perf_counter()
        made.pull(ids, out[:PULLED])
        took.append(time.perf_counter() - started)
    print(grown, 1000 * statistics.median(took))


def resident() -> int:
    """Bytes of memory this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
