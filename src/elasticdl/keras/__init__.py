"""Keras models on TensorFlow: the adapter that lets the engine train them, and layers whose rows may lie on ps."""

from elasticdl.keras.arrays import numpy_dataset
from elasticdl.keras.callbacks import LearningRateScheduler
from elasticdl.keras.embeddings.layers import Embedding, SparseEmbedding
from elasticdl.keras.served_model import ServedModel

__all__ = ["Embedding", "LearningRateScheduler", "ServedModel", "SparseEmbedding", "numpy_dataset"]
