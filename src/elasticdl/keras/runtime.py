"""Imports TensorFlow and Keras in one place: quietly, on the right backend, with settings that decide the bits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from elasticdl.errors import ModelError
from elasticdl.extras import install_command

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when TensorFlow is loaded
os.environ["KERAS_BACKEND"] = "tensorflow"


@contextmanager
def _silence_stderr() -> Iterator[None]:
    """Silence what the libraries write to standard error while they are loaded, regardless of log levels."""
    stderr, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)


try:
    with _silence_stderr():
        import keras
        import tensorflow as tf
        from keras.src.random.seed_generator import global_seed_generator
except ImportError as exc:
    raise ModelError(
        f"the model file is written in Keras, but TensorFlow cannot be imported ({exc}): "
        + install_command("tensorflow")
    ) from exc

if keras.backend.backend() != "tensorflow":
    raise ModelError(
        f"expected Keras on TensorFlow. Received: Keras on {keras.backend.backend()}, which was imported before "
        "ElasticDL; leave out KERAS_BACKEND"
    )

_SEED = 1


def configure_numerics(threads: int, *, reproducible: bool) -> None:
    """Set what the bits depend on, before the first operation. Each number of threads sums in another order."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    if reproducible:
        # Operations with random numbers of their own take their seeds from this one and their place in the graph.
        tf.random.set_seed(_SEED)
        tf.config.experimental.enable_op_determinism()


__all__ = ["configure_numerics", "global_seed_generator", "keras", "tf"]
