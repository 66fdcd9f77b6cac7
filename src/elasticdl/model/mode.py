"""What a model file is used for at the moment; `dataset_fn(dataset, mode, metadata)` is told. No torch here."""

from elasticdl.data.dataset import Mode

__all__ = ["Mode"]
