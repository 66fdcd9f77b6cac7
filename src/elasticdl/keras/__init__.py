"""Keras models on TensorFlow: the adapter that lets the engine train them, and layers whose rows may lie on ps."""

from elasticdl.keras.callbacks import LearningRateScheduler
from elasticdl.keras.embedding import Embedding, SparseEmbedding

__all__ = ["Embedding", "LearningRateScheduler", "SparseEmbedding"]
