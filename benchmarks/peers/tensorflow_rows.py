"""The peer of ps_rows.py: a TensorFlow parameter server, its gather and its sparse Adagrad.

    python tensorflow_rows.py ROWS COLUMNS CYCLES SIZE...

Run in an environment with TensorFlow. Prints a line `RATE SIZE MILLION_ROWS_PER_S` for each size.
"""

from __future__ import annotations

import multiprocessing
import socket
import sys
import time

import numpy as np


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def serve(cluster: dict[str, list[str]]) -> None:
    import tensorflow as tf

    server = tf.distribute.Server(tf.train.ClusterSpec(cluster), job_name="ps", task_index=0, protocol="grpc")
    server.join()


def main(rows: int, columns: int, cycles: int, sizes: list[int]) -> None:
    cluster = {"ps": [f"127.0.0.1:{free_port()}"], "chief": [f"127.0.0.1:{free_port()}"]}
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(cluster,), daemon=True)
    process.start()
    import tensorflow as tf

    tf.config.experimental_connect_to_cluster(
        tf.train.ClusterSpec(cluster), job_name="chief", task_index=0, protocol="grpc"
    )
    with tf.device("/job:ps/replica:0/task:0"):
        values = tf.Variable(tf.random.uniform((rows, columns), -0.05, 0.05))
        accumulator = tf.Variable(tf.fill((rows, columns), 0.1))

    @tf.function
    def cycle(ids, gradients):  # type: ignore[no-untyped-def]
        with tf.device("/job:ps/replica:0/task:0"):
            pulled = tf.gather(values, ids)
        with tf.device("/job:chief/replica:0/task:0"):
            seen = tf.identity(pulled)
            sent = gradients + 0.0 * tf.reduce_mean(seen)  # a gradient depends on what was pulled
        with tf.device("/job:ps/replica:0/task:0"):
            tf.raw_ops.ResourceSparseApplyAdagradV2(
                var=values.handle, accum=accumulator.handle, lr=0.01, epsilon=1e-10, grad=sent, indices=ids
            )

    random = np.random.default_rng(0)
    for size in sizes:
        batches = [tf.constant(random.choice(rows, size, replace=False)) for _ in range(8)]
        gradients = tf.constant(random.standard_normal((size, columns)).astype(np.float32))
        for step in range(4):
            cycle(batches[step % 8], gradients)
        float(values[0, 0])
        started = time.perf_counter()
        for step in range(cycles):
            cycle(batches[step % 8], gradients)
        float(values[0, 0])  # until the last was applied
        print(f"RATE {size} {size * cycles / (time.perf_counter() - started) / 1e6}", flush=True)
    process.kill()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), [int(size) for size in sys.argv[4:]])
