"""A peer of ctr_throughput.py: the same DeepFM with Keras on TensorFlow's ParameterServerStrategy.

    python tensorflow_ctr.py DATA BATCH STEPS

One worker, one ps, a coordinator, as its guide sets them up. Ids are numbered beforehand. Prints `RATE SAMPLES_PER_S`.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from tensorflow_cluster import open_strategy

COLUMNS, HIDDEN, FIELDS, NUMBERS = 16, (256, 128), 26, 13
RECORD = np.dtype([("label", "<f4"), ("numbers", "<f4", NUMBERS), ("ids", "<i8", FIELDS)])


def main(data: str, batch: int, steps: int) -> None:
    cluster, coordinator = open_strategy(workers=1, ps=1)
    import keras
    import tensorflow as tf

    records = np.fromfile(data, RECORD)
    values, value_numbers = np.unique(records["ids"], return_inverse=True)
    value_numbers = value_numbers.reshape(records["ids"].shape)

    with cluster.scope():
        ids = keras.Input((FIELDS,), dtype="int64")
        numbers = keras.Input((NUMBERS,))
        factors = keras.layers.Embedding(len(values), COLUMNS)(ids)
        first = keras.ops.sum(keras.layers.Embedding(len(values), 1)(ids), axis=(1, 2))
        second = 0.5 * keras.ops.sum(
            keras.ops.square(keras.ops.sum(factors, axis=1)) - keras.ops.sum(keras.ops.square(factors), axis=1), axis=1
        )
        deep = keras.ops.concatenate([keras.layers.Flatten()(factors), numbers], axis=1)
        for size in HIDDEN:
            deep = keras.layers.Dense(size, activation="relu")(deep)
        deep = keras.layers.Dense(1)(deep)[:, 0]
        score = first + second + deep + keras.layers.Dense(1)(numbers)[:, 0]
        model = keras.Model([ids, numbers], score)
        optimizer = keras.optimizers.Adagrad(0.02)
        optimizer.build(model.trainable_variables)

    def batches():  # type: ignore[no-untyped-def]
        dataset = tf.data.Dataset.from_tensor_slices((value_numbers, records["numbers"], records["label"]))
        return dataset.repeat().batch(batch, drop_remainder=True).prefetch(4)

    source = iter(coordinator.create_per_worker_dataset(batches))

    @tf.function
    def step(iterator):  # type: ignore[no-untyped-def]
        def train(ids, numbers, labels):  # type: ignore[no-untyped-def]
            with tf.GradientTape() as tape:
                score = model([ids, numbers], training=True)
                loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, score))
            optimizer.apply_gradients(
                zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
            )
            return loss

        return cluster.run(train, args=next(iterator))

    for _ in range(10):
        coordinator.schedule(step, args=(source,))
    coordinator.join()
    started = time.perf_counter()
    for _ in range(steps):
        coordinator.schedule(step, args=(source,))
    coordinator.join()
    print(f"RATE {steps * batch / (time.perf_counter() - started)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
