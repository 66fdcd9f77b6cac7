"""Keras models on TensorFlow: the adapter that lets the engine train them, and layers whose rows may lie on ps."""

from elasticdl.keras.arrays import of_arrays
from elasticdl.keras.callbacks import LearningRateScheduler
from elasticdl.keras.embedding import Embedding, SparseEmbedding

__all__ = ["Embedding", "LearningRateScheduler", "SparseEmbedding", "of_arrays"]
