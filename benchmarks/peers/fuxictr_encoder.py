"""Fits FuxiCTR's feature encoder to a file and applies it, in its own environment. Prints seconds as JSON.

It is applied to pieces of 100,000 rows, as by its `build_dataset`, without the processes that this would start.

python fuxictr_encoder.py FILE.csv DIRECTORY MIN_COUNT
"""

from __future__ import annotations

import json
import sys
import time

from fuxictr.preprocess import FeatureProcessor

NUMBERS = [f"I{number}" for number in range(1, 14)]
PIECE_ROWS = 100_000
CATEGORIES = [f"C{number}" for number in range(1, 27)]


def main(path: str, directory: str, min_count: int) -> None:
    features = [
        {"name": NUMBERS, "active": True, "dtype": "float", "type": "numeric", "normalizer": "StandardScaler"},
        {"name": CATEGORIES, "active": True, "dtype": "str", "type": "categorical"},
    ]
    started_at, cpu_before_s = time.perf_counter(), time.process_time()
    encoder = FeatureProcessor(features, {"name": "label", "dtype": "float"}, "encoded", directory)
    frame = encoder.preprocess(encoder.read_data(path))
    encoder.fit(frame, min_categr_count=min_count)
    fit_s, fit_cpu_s = time.perf_counter() - started_at, time.process_time() - cpu_before_s
    rows = frame.collect()
    for start in range(0, len(rows), PIECE_ROWS):
        piece = rows.slice(start, PIECE_ROWS)
        encoder.transform({name: piece[name].to_numpy() for name in piece.columns})
    result = {
        "seconds": fit_s,
        "cpu_s": fit_cpu_s,
        "both_s": time.perf_counter() - started_at,
        "both_cpu_s": time.process_time() - cpu_before_s,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
