"""The peer of ps_memory.py: TensorFlow's mutable hash table.

    python tensorflow_memory.py ROWS FLOATS PULLED

Prints the bytes the process grew by, and the milliseconds of a lookup.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(rows: int, floats: int, pulled: int) -> None:
    import tensorflow as tf

    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, tf.zeros(floats))
    values = tf.random.uniform((100_000, floats))
    table.lookup(tf.constant([0], tf.int64))
    bytes_before = resident_bytes()
    for start in range(0, rows, 100_000):
        table.insert(tf.constant(np.arange(start, start + 100_000) * 7), values)
    added_bytes = resident_bytes() - bytes_before
    generator = np.random.default_rng(0)
    durations_s = []
    for _ in range(30):
        ids = tf.constant(generator.integers(0, rows, pulled) * 7)
        started_at = time.perf_counter()
        table.lookup(ids).numpy()
        durations_s.append(time.perf_counter() - started_at)
    print(added_bytes, 1000 * statistics.median(durations_s))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
