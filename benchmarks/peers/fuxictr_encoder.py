"""FuxiCTR's feature encoder fitted on a file; run in an environment of its own. Prints seconds as JSON.

python fuxictr_encoder.py FILE.csv DIRECTORY MIN_COUNT
"""

from __future__ import annotations

import json
import sys
import time

from fuxictr.preprocess import FeatureProcessor

NUMBERS = [f"I{place}" for place in range(1, 14)]
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
    print(json.dumps({"seconds": time.perf_counter() - started, "cpu_s": time.process_time() - before_s}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
