"""FuxiCTR's feature encoder, fitted on a file and applied to it; in an environment of its own. Prints seconds as JSON.

It is applied to pieces of 100,000 rows, as its `build_dataset` does, without the processes that would start for it.

python fuxictr_encoder.py FILE.csv DIRECTORY MIN_COUNT
"""

from __future__ import annotations

import json
import sys
import time

from fuxictr.preprocess import FeatureProcessor

NUMBERS = [f"I{place}" for place in range(1, 14)]
PIECE = 100_000
CATEGORIES = [f"C{place}" for place in range(1, 27)]


def main(path: str, directory: str, min_count: int) -> None:
    features = [
        {"name": NUMBERS, "active": True, "dtype": "float", "type": "numeric", "normalizer": "StandardScaler"},
        {"name": CATEGORIES, "active": True, "dtype": "str", "type": "categorical"},
    ]
    started, before_s = time.perf_counter(), time.process_time()
    encoder = FeatureProcessor(features, {"name": "label", "dtype": "float"}, "encoded", directory)
    frame = encoder.preprocess(encoder.read_data(path))
    encoder.fit(frame, min_categr_count=min_count)
    fitted, fitted_s = time.perf_counter() - started, time.process_time() - before_s
    whole = frame.collect()
    for start in range(0, len(whole), PIECE):
        piece = whole.slice(start, PIECE)
        encoder.transform({name: piece[name].to_numpy() for name in piece.columns})
    found = {
        "seconds": fitted,
        "cpu_s": fitted_s,
        "both_s": time.perf_counter() - started,
        "both_cpu_s": time.process_time() - before_s,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
