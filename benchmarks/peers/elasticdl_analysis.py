"""Analyzes a file with ElasticDL in a separate process. Prints seconds and the peak of memory as JSON.

python elasticdl_analysis.py FILE.csv MIN_COUNT MEMORY
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from elasticdl.features import analysis
from elasticdl.features.sql import csv_engine  # noqa: F401  (imported before the clock starts, as the peer's)
from elasticdl.features.sql.interface import AnalysisOptions


def main(path: str, min_count: int, memory: str) -> None:
    started_at, cpu_before_s = time.perf_counter(), time.process_time()
    statistics = analysis.analyze(
        analysis.AnalysisSource(path, memory=memory), AnalysisOptions(min_count=min_count), "label"
    )
    statistics.save(Path(path).with_suffix(".json"))
    seconds = time.perf_counter() - started_at
    # Not ru_maxrss, which includes the memory of the parent process before exec.
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    peak_bytes = int(line.split()[1]) * 1024
    print(
        json.dumps(
            {
                "seconds": seconds,
                "cpu_s": time.process_time() - cpu_before_s,
                "peak_bytes": peak_bytes,
                "rows": statistics.rows,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
