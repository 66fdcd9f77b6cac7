"""The mode that `dataset_fn(dataset, mode, metadata)` gets: training, evaluation or prediction. Imports no torch."""

from elasticdl.data.dataset import Mode

__all__ = ["Mode"]
