"""The peer of ps_rows.py: TensorFlow's ParameterServerStrategy, its gather and its sparse Adagrad.

    python tensorflow_rows.py ROWS COLUMNS CYCLES SIZE...

Run in an environment with TensorFlow. Prints a line `RATE SIZE MILLION_ROWS_PER_S` for each size.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from tensorflow_cluster import open_strategy


def main(rows: int, columns: int, cycles: int, sizes: list[int]) -> None:
    cluster, coordinator = open_strategy(workers=1, ps=1)
    import tensorflow as tf

    with cluster.scope():
        values = tf.Variable(tf.random.uniform((rows, columns), -0.05, 0.05))
        accumulator = tf.Variable(tf.fill((rows, columns), 0.1))

    def batches(size):  # type: ignore[no-untyped-def]
        random = np.random.default_rng(0)
        ids = np.stack([random.choice(rows, size, replace=False) for _ in range(8)])
        gradients_sent = random.standard_normal((size, columns)).astype(np.float32)
        return tf.data.Dataset.from_tensor_slices(ids).repeat().map(lambda batch: (batch, tf.constant(gradients_sent)))

    for size in sizes:
        source = iter(coordinator.create_per_worker_dataset(lambda size=size: batches(size)))

        @tf.function
        def cycle(iterator):  # type: ignore[no-untyped-def]
            ids, gradients = next(iterator)
            pulled = tf.gather(values, ids)
            gradients_sent = gradients + 0.0 * tf.reduce_mean(pulled)  # a gradient depends on what was pulled
            with tf.device(values.device):
                tf.raw_ops.ResourceSparseApplyAdagradV2(
                    var=values.handle,
                    accum=accumulator.handle,
                    lr=0.01,
                    epsilon=1e-10,
                    grad=gradients_sent,
                    indices=ids,
                )

        for _ in range(4):
            coordinator.schedule(cycle, args=(source,))
        coordinator.join()
        started = time.perf_counter()
        for _ in range(cycles):
            coordinator.schedule(cycle, args=(source,))
        coordinator.join()
        print(f"RATE {size} {size * cycles / (time.perf_counter() - started) / 1e6}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), [int(size) for size in sys.argv[4:]])
