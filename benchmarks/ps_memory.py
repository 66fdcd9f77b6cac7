"""Memory of a ps: bytes per row over the payload, and the time of a pull, against the number of rows.

    python benchmarks/ps_memory.py [--quick] [--json FILE]

The payload of a row is its values and the state of its optimizer: 16 columns with Adagrad, 128 bytes. The benchmark
measures how much the process grows, not what the table reports. The peer is TensorFlow's hash table with rows of the
same size.
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

COLUMNS, PAYLOAD_BYTES = 16, 128
SIZES, QUICK_SIZES = (100_000, 1_000_000, 10_000_000), (100_000, 1_000_000)
PULLED_ROWS, PULLS = 23_616, 30
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
        measure_table(options.measure)
        return 0
    peer = None if options.no_peer else environment.tensorflow()
    rows = []
    for size in QUICK_SIZES if options.quick else SIZES:
        own_result = _run([sys.executable, __file__, "--measure", str(size)])
        peer_result = (
            _run([peer / "python", "-W", "ignore", PEER, str(size), str(PAYLOAD_BYTES // 4), str(PULLED_ROWS)])
            if peer
            else None
        )
        print(f"{size:,} rows: ours {own_result}, peer {peer_result}", file=sys.stderr, flush=True)
        overhead = own_result[0] / size / PAYLOAD_BYTES
        scope, peer_name = f"{size:,} rows", "TensorFlow's hash table"
        peer_overhead = peer_result[0] / size / PAYLOAD_BYTES if peer_result else None
        measure = f"bytes per row over the payload, {scope}"
        rows.append(table.Row(measure, "×", overhead, peer_overhead, peer_name, f"≤ {GOAL:g}", overhead <= GOAL))
        peer_pull_ms = peer_result[1] if peer_result else None
        rows.append(table.Row(f"pull of {PULLED_ROWS:,} rows, {scope}", "ms", own_result[1], peer_pull_ms, peer_name))
    table.show("Memory of a ps", rows, notes=[table.machine()])
    if options.json:
        table.write(options.json, rows)
    return 0


def _run(argv: Sequence[object]) -> tuple[float, float]:
    """Runs a table in its own process. Returns the bytes it adds, and the milliseconds of a pull."""
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    finished = subprocess.run(
        [str(argument) for argument in argv], env=environ, stdout=subprocess.PIPE, text=True, check=True
    )
    added_bytes, pull_ms = finished.stdout.split()[-2:]
    return float(added_bytes), float(pull_ms)


def measure_table(size: int) -> None:
    spec = TableSpec(name="rows", columns=COLUMNS, optimizer=Optimizer(rule="adagrad"))
    table, rows = create_table(spec, seed=1), np.empty((100_000, COLUMNS), np.float32)
    rows[:] = 0
    bytes_before = resident_bytes()
    for start in range(0, size, 100_000):
        table.pull(np.arange(start, start + 100_000) * 7, rows)
    added_bytes = resident_bytes() - bytes_before
    generator = np.random.default_rng(0)
    durations_s = []
    for _ in range(PULLS):
        ids = generator.integers(0, size, PULLED_ROWS) * 7
        started = time.perf_counter()
        table.pull(ids, rows[:PULLED_ROWS])
        durations_s.append(time.perf_counter() - started)
    print(added_bytes, 1000 * statistics.median(durations_s))


def resident_bytes() -> int:
    """Returns the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
