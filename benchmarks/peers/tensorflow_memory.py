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


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(rows: int, floats: int, pulled: int) -> None:
    import tensorflow as tf

    made = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, tf.zeros(floats))
    values = tf.random.uniform((100_000, floats))
    made.lookup(tf.constant([0], tf.int64))
    before = resident()
    for start in range(0, rows, 100_000):
        made.insert(tf.constant(np.arange(start, start + 100_000) * 7), values)
    grown = resident() - before
    random = np.random.default_rng(0)
    took = []
    for _ in range(30):
        ids = tf.constant(random.integers(0, rows, pulled) * 7)
        started = time.perf_counter()
        made.lookup(ids).numpy()
        took.append(time.perf_counter() - started)
    print(grown, 1000 * statistics.median(took))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
