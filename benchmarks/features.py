"""Features: rows a second of analysis and transformation beside FuxiCTR's feature encoder; memory against rows.

    python benchmarks/features.py [--quick] [--no-peer] [--data FILE] [--json FILE]

Both read the same file, Criteo's sample where it is at hand and else a made-up one of its shape, in processes of their
own, in turn, and leave vocabularies and figures of all 39 columns on disk; imports are not counted. FuxiCTR's is
`FeatureProcessor.fit`, with what comes before it, in an environment that is made on the first run. Made-up rows, whose
vocabularies are larger, are transformed, too, and show how memory grows. The files are removed at the end.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import table
from ctr.rows import COLUMNS, SAMPLE
from models import criteo_like
from peers import environment
from pyarrow import csv

from elasticdl.features import features_file, proposal
from elasticdl.features.analysis import AnalysisSource, analyze
from elasticdl.features.preprocessing.preprocessor import Preprocessor
from elasticdl.features.preprocessing.target_encoding import TargetFolds
from elasticdl.features.sql.interface import AnalysisOptions

HERE = Path(__file__).parent
OURS, PEER = HERE / "peers" / "elasticdl_analysis.py", HERE / "peers" / "fuxictr_encoder.py"
PEER_NAME = "FuxiCTR 2.3.10"
SIZES, QUICK = (100_000, 1_000_000, 10_000_000), (20_000, 100_000)
SPEED_ROWS, QUICK_ROWS = 500_000, 50_000
REPEATS = 7
LEAST_COUNT = 2
MEMORY = "512MB"
FASTER, FLAT, FAST = 5.0, 1.25, 200_000
PIECE = 16_384


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small files")
    parser.add_argument("--no-peer", action="store_true", help="without FuxiCTR, which is installed on the first run")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FILE",
        help="analyze this: Criteo's .tsv.xz, or a CSV with its columns and a header",
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    peer = None if options.no_peer else environment.fuxictr()
    with tempfile.TemporaryDirectory(prefix="elasticdl-features-") as directory:
        data = options.data or (SAMPLE if SAMPLE.exists() and not options.quick else None)
        rows = speed(Path(directory), QUICK_ROWS if options.quick else SPEED_ROWS, peer, data)
        rows += memory(Path(directory), QUICK if options.quick else SIZES)
    table.show("Analysis of features", rows, notes=[table.machine()])
    if options.json:
        table.write(options.json, rows)
    return 0


def speed(directory: Path, size: int, peer: Path | None, data: Path | None) -> list[table.Row]:
    """The median of several runs, ours and the peer's in turn, so that both have the same machine."""
    path, made_up = directory / "clicks.csv", directory / "made-up.csv"
    criteo_like.write(made_up, size)
    if data is not None:
        size = _copied(data, path)
    else:
        made_up.rename(path)
    ours: list[dict[str, Any]] = []
    theirs: list[dict[str, Any]] = []
    for turn in range(REPEATS):
        ours.append(_ours(path))
        if peer is not None:
            encoded = directory / f"encoded-{turn}"
            theirs.append(_run([peer / "python", "-W", "ignore", PEER, path, encoded, LEAST_COUNT]))
        print(f"{size:,} rows: ours {ours[-1]}, peer {theirs[-1:]}", file=sys.stderr, flush=True)
    made = []
    for measure, key, their_key, name in (
        (f"analyze, {size:,} rows", "seconds", "both_s", f"{PEER_NAME}, fit and transform"),
        (f"analyze, {size:,} rows, a second of CPU", "cpu_s", "both_cpu_s", f"{PEER_NAME}, fit and transform"),
        (f"analyze, {size:,} rows, beside the fit alone", "seconds", "seconds", f"{PEER_NAME}, fit"),
    ):
        mine = size / statistics.median(run[key] for run in ours)
        other = size / statistics.median(run[their_key] for run in theirs) if theirs else None
        met = mine >= FASTER * other if other is not None else None
        made.append(table.Row(measure, "rows/s", mine, other, name, f"≥ {FASTER:g} × the peer's", met))
    transform_s = [run["both_cpu_s"] - run["cpu_s"] for run in theirs]
    other = size / statistics.median(transform_s) if theirs else None
    text = f"transformation of 39 columns, pieces of {PIECE:,} rows, a core"
    mine = transformation(path)
    made.append(table.Row(text, "rows/s", mine, other, f"{PEER_NAME}, transform", f"≥ {FAST:,}", mine >= FAST))
    path.unlink()
    if made_up.exists():
        mine = transformation(made_up)
        made.append(table.Row(f"{text}, made-up rows", "rows/s", mine, None, "–", f"≥ {FAST:,}", mine >= FAST))
        made_up.unlink()
    return made


def _copied(data: Path, path: Path) -> int:
    """As CSV with a header; how many rows there are."""
    with path.open("wb") as file:
        if data.suffix == ".xz":
            file.write(",".join(COLUMNS).encode() + b"\n")
            with lzma.open(data) as lines:
                file.writelines(line.replace(b"\t", b",") for line in lines)
        else:
            with data.open("rb") as lines:
                shutil.copyfileobj(lines, file)
    with path.open("rb") as lines:
        return sum(1 for _ in lines) - 1


def transformation(path: Path) -> float:
    """Rows a second of CPU, from Arrow columns to what a model takes, as proposed; the median of runs."""
    known = analyze(AnalysisSource(str(path)), AnalysisOptions(), "label")
    asked = features_file.parse_features_file(
        features_file.render_features_file(known, proposal.propose_transforms(known), "statistics.json"),
        "features.yaml",
    )
    front = Preprocessor.build(asked, known)
    options = csv.ConvertOptions(column_types=front.column_types, strings_can_be_null=True)
    whole = csv.read_csv(path, csv.ReadOptions(use_threads=False), convert_options=options)
    batches = whole.combine_chunks().to_batches(max_chunksize=PIECE)
    folds = TargetFolds(front.target_encoders)
    for batch in batches:
        folds.add_batch(batch, front.encode_ids(batch), front.read_labels(batch))
    front = front.model_copy(update={"target_encoders": folds.fitted_encoders(0.25)})
    taken = []
    for _ in range(REPEATS):
        started = time.process_time()
        for batch in batches:
            front.encode(batch)
        taken.append(time.process_time() - started)
    return float(whole.num_rows / statistics.median(taken))


def memory(directory: Path, sizes: Sequence[int]) -> list[table.Row]:
    """The peak of the process: tables of counts up to a sixteenth of `MEMORY`, and the vocabularies."""
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
