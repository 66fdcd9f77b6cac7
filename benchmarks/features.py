"""Features: rows per second of analysis and transformation beside FuxiCTR's feature encoder; memory by rows.

    python benchmarks/features.py [--quick] [--no-peer] [--data FILE] [--json FILE]

Both read the same file, Criteo's sample if it is available and a synthetic one of its shape otherwise, in processes of
their own, in turn, and write vocabularies and statistics of all 39 columns to disk; imports are not counted. FuxiCTR
runs `FeatureProcessor.fit`, with the steps before it, in an environment that is created on the first run. Synthetic
rows, whose vocabularies are larger, are transformed, too, and show how memory grows. The files are removed at the
end.
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

BENCHMARKS = Path(__file__).parent
OUR_SCRIPT, PEER_SCRIPT = BENCHMARKS / "peers" / "elasticdl_analysis.py", BENCHMARKS / "peers" / "fuxictr_encoder.py"
PEER_NAME = "FuxiCTR 2.3.10"
SIZES, QUICK_SIZES = (100_000, 1_000_000, 10_000_000), (20_000, 100_000)
SPEED_ROWS, QUICK_ROWS = 500_000, 50_000
REPEATS = 7
MIN_COUNT = 2
MEMORY = "512MB"
GOAL_SPEEDUP, GOAL_GROWTH, GOAL_ROWS_PER_S = 5.0, 1.25, 200_000
PIECE_ROWS = 16_384


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
        rows = measure_speed(Path(directory), QUICK_ROWS if options.quick else SPEED_ROWS, peer, data)
        rows += measure_memory(Path(directory), QUICK_SIZES if options.quick else SIZES)
    table.show("Analysis of features", rows, notes=[table.machine()])
    if options.json:
        table.write(options.json, rows)
    return 0


def measure_speed(directory: Path, size: int, peer: Path | None, data: Path | None) -> list[table.Row]:
    """Measures medians of several runs, ours and the peer's in turn, so that both have the same machine."""
    path, synthetic = directory / "clicks.csv", directory / "synthetic.csv"
    criteo_like.write(synthetic, size)
    if data is not None:
        size = _copy_as_csv(data, path)
    else:
        synthetic.rename(path)
    own_runs: list[dict[str, Any]] = []
    peer_runs: list[dict[str, Any]] = []
    for turn in range(REPEATS):
        own_runs.append(_run_analysis(path))
        if peer is not None:
            encoded = directory / f"encoded-{turn}"
            peer_runs.append(_run([peer / "python", "-W", "ignore", PEER_SCRIPT, path, encoded, MIN_COUNT]))
        print(f"{size:,} rows: ours {own_runs[-1]}, peer {peer_runs[-1:]}", file=sys.stderr, flush=True)
    rows = []
    for measure, key, peer_key, peer_name in (
        (f"analyze, {size:,} rows", "seconds", "both_s", f"{PEER_NAME}, fit and transform"),
        (f"analyze, {size:,} rows, a second of CPU", "cpu_s", "both_cpu_s", f"{PEER_NAME}, fit and transform"),
        (f"analyze, {size:,} rows, beside the fit alone", "seconds", "seconds", f"{PEER_NAME}, fit"),
    ):
        own_rate = size / statistics.median(run[key] for run in own_runs)
        peer_rate = size / statistics.median(run[peer_key] for run in peer_runs) if peer_runs else None
        is_met = own_rate >= GOAL_SPEEDUP * peer_rate if peer_rate is not None else None
        rows.append(
            table.Row(measure, "rows/s", own_rate, peer_rate, peer_name, f"≥ {GOAL_SPEEDUP:g} × the peer's", is_met)
        )
    transform_s = [run["both_cpu_s"] - run["cpu_s"] for run in peer_runs]
    peer_rate = size / statistics.median(transform_s) if peer_runs else None
    measure = f"transformation of 39 columns, pieces of {PIECE_ROWS:,} rows, a core"
    own_rate = measure_transformation(path)
    rows.append(
        table.Row(
            measure,
            "rows/s",
            own_rate,
            peer_rate,
            f"{PEER_NAME}, transform",
            f"≥ {GOAL_ROWS_PER_S:,}",
            own_rate >= GOAL_ROWS_PER_S,
        )
    )
    path.unlink()
    if synthetic.exists():
        own_rate = measure_transformation(synthetic)
        rows.append(
            table.Row(
                f"{measure}, made-up rows",
                "rows/s",
                own_rate,
                None,
                "–",
                f"≥ {GOAL_ROWS_PER_S:,}",
                own_rate >= GOAL_ROWS_PER_S,
            )
        )
        synthetic.unlink()
    return rows


def _copy_as_csv(data: Path, path: Path) -> int:
    """Copies a file as CSV with a header. Returns the number of rows."""
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


def measure_transformation(path: Path) -> float:
    """Returns the rows per second of CPU from Arrow columns to the inputs of a model, as proposed; a median of runs."""
    column_statistics = analyze(AnalysisSource(str(path)), AnalysisOptions(), "label")
    features = features_file.parse_features_file(
        features_file.render_features_file(
            column_statistics, proposal.propose_transforms(column_statistics), "statistics.json"
        ),
        "features.yaml",
    )
    preprocessor = Preprocessor.build(features, column_statistics)
    options = csv.ConvertOptions(column_types=preprocessor.column_types, strings_can_be_null=True)
    columns = csv.read_csv(path, csv.ReadOptions(use_threads=False), convert_options=options)
    batches = columns.combine_chunks().to_batches(max_chunksize=PIECE_ROWS)
    folds = TargetFolds(preprocessor.target_encoders)
    for batch in batches:
        folds.add_batch(batch, preprocessor.encode_ids(batch), preprocessor.read_labels(batch))
    preprocessor = preprocessor.model_copy(update={"target_encoders": folds.fitted_encoders(0.25)})
    durations_s = []
    for _ in range(REPEATS):
        started_at = time.process_time()
        for batch in batches:
            preprocessor.encode(batch)
        durations_s.append(time.process_time() - started_at)
    return float(columns.num_rows / statistics.median(durations_s))


def measure_memory(directory: Path, sizes: Sequence[int]) -> list[table.Row]:
    """Measures the peak of the process: tables of counts up to a sixteenth of `MEMORY`, and the vocabularies."""
    rows, peaks_bytes = [], []
    for size in sizes:
        path = directory / f"clicks-{size}.csv"
        criteo_like.write(path, size)
        run = _run_analysis(path)
        path.unlink()
        print(f"{size:,} rows: {run}", file=sys.stderr, flush=True)
        peaks_bytes.append(run["peak_bytes"])
        rows.append(
            table.Row(f"peak of memory, {size:,} rows, --memory {MEMORY}", "MB", peaks_bytes[-1] / 1e6, None, "–")
        )
    rows.append(
        table.Row(
            f"peak at {sizes[-1]:,} rows over that at {sizes[-2]:,}", "×", peaks_bytes[-1] / peaks_bytes[-2], None, "–"
        )
    )
    growth = peaks_bytes[-1] / peaks_bytes[0]
    measure = f"peak at {sizes[-1]:,} rows over that at {sizes[0]:,}"
    rows.append(table.Row(measure, "×", growth, None, "–", f"≤ {GOAL_GROWTH:g}", growth <= GOAL_GROWTH))
    return rows


def _run_analysis(path: Path) -> dict[str, Any]:
    return _run([sys.executable, OUR_SCRIPT, path, MIN_COUNT, MEMORY])


def _run(argv: Sequence[object]) -> dict[str, Any]:
    source = str(BENCHMARKS.parent / "src")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    finished = subprocess.run(
        [str(argument) for argument in argv], env=environ, stdout=subprocess.PIPE, text=True, check=True
    )
    result = json.loads(finished.stdout.splitlines()[-1])
    assert isinstance(result, dict)
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
