"""Features: rows a second of the analysis beside FuxiCTR's feature encoder, and its memory against the number of rows.

    python benchmarks/features.py [--quick] [--no-peer] [--json FILE]

Both read the same made-up file with the shape of Criteo's data in processes of their own, in turn, and leave
vocabularies and figures of all 39 columns on disk; imports are not counted. FuxiCTR's is `FeatureProcessor.fit`, with
what comes before it, in an environment that is made on the first run. The files are removed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import table
from models import criteo_like
from peers import environment

HERE = Path(__file__).parent
OURS, PEER = HERE / "peers" / "elasticdl_analysis.py", HERE / "peers" / "fuxictr_encoder.py"
PEER_NAME = "FuxiCTR 2.3.10"
SIZES, QUICK = (100_000, 1_000_000, 10_000_000), (20_000, 100_000)
SPEED_ROWS, QUICK_ROWS = 500_000, 50_000
REPEATS = 3
LEAST_COUNT = 2
MEMORY = "512MB"
FASTER, FLAT = 5.0, 1.25


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small files")
    parser.add_argument("--no-peer", action="store_true", help="without FuxiCTR, which is installed on the first run")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    peer = None if options.no_peer else environment.fuxictr()
    with tempfile.TemporaryDirectory(prefix="elasticdl-features-") as directory:
        rows = speed(Path(directory), QUICK_ROWS if options.quick else SPEED_ROWS, peer)
        rows += memory(Path(directory), QUICK if options.quick else SIZES)
    table.show("Analysis of features", rows, notes=[table.machine()])
    if options.json:
        table.write(options.json, rows)
    return 0


def speed(directory: Path, size: int, peer: Path | None) -> list[table.Row]:
    """The median of several runs, ours and the peer's in turn, so that both have the same machine."""
    path = directory / "clicks.csv"
    criteo_like.write(path, size)
    ours: list[dict[str, Any]] = []
    theirs: list[dict[str, Any]] = []
    for turn in range(REPEATS):
        ours.append(_ours(path))
        if peer is not None:
            encoded = directory / f"encoded-{turn}"
            theirs.append(_run([peer / "python", "-W", "ignore", PEER, path, encoded, LEAST_COUNT]))
        print(f"{size:,} rows: ours {ours[-1]}, peer {theirs[-1:]}", file=sys.stderr, flush=True)
    path.unlink()
    made = []
    for measure, key in (
        (f"analysis, {size:,} rows", "seconds"),
        (f"analysis, {size:,} rows, a second of CPU", "cpu_s"),
    ):
        mine = size / statistics.median(run[key] for run in ours)
        other = size / statistics.median(run[key] for run in theirs) if theirs else None
        met = mine >= FASTER * other if other is not None else None
        made.append(table.Row(measure, "rows/s", mine, other, PEER_NAME, f"≥ {FASTER:g} × the peer's", met))
    return made


def memory(directory: Path, sizes: Sequence[int]) -> list[table.Row]:
    """The peak of the process. It may grow up to what DuckDB is given, and not with the rows beyond that."""
    made, peaks = [], []
    for size in sizes:
        path = directory / f"clicks-{size}.csv"
        criteo_like.write(path, size)
        run = _ours(path)
        path.unlink()
        print(f"{size:,} rows: {run}", file=sys.stderr, flush=True)
        peaks.append(run["peak_bytes"])
        made.append(table.Row(f"peak of memory, {size:,} rows, --memory {MEMORY}", "MB", peaks[-1] / 1e6, None, "–"))
    made.append(
        table.Row(f"peak at {sizes[-1]:,} rows over that at {sizes[-2]:,}", "×", peaks[-1] / peaks[-2], None, "–")
    )
    growth = peaks[-1] / peaks[0]
    text = f"peak at {sizes[-1]:,} rows over that at {sizes[0]:,}"
    made.append(table.Row(text, "×", growth, None, "–", f"≤ {FLAT:g}", growth <= FLAT))
    return made


def _ours(path: Path) -> dict[str, Any]:
    return _run([sys.executable, OURS, path, LEAST_COUNT, MEMORY])


def _run(argv: Sequence[object]) -> dict[str, Any]:
    source = str(HERE.parent / "src")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([str(one) for one in argv], env=environ, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
