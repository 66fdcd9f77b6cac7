"""Elastic training in a user's own script, with a few lines.

    import elasticdl.torch as elastic

    job = elastic.join(model, optimizer, loader, epochs=2)  # a DataLoader, a dataset or an IterableDataset
    for step in job:                    # each step of the plan, whatever the workers do
        for features, labels in step:   # this worker's share, one logical rank at a time, as collate_fn made it
            step.backward(criterion(model(features), labels))

`elasticdl run --workers 1:4 train.py` makes it elastic; `python train.py` runs it alone.

`Embedding` and `EmbeddingBag` are layers whose rows lie in tables, on the ps of a job.
"""

from typing import TYPE_CHECKING, Any

from elasticdl.torch.join import JoinedJob, join
from elasticdl.worker.reading.streams import count_records
from elasticdl.worker.training.step import Step

if TYPE_CHECKING:
    from elasticdl.model.embeddings.layers import Embedding, EmbeddingBag
    from elasticdl.ps.tables.initializer import Initializer
    from elasticdl.ps.tables.optimizer import Optimizer

__all__ = ["Embedding", "EmbeddingBag", "Initializer", "JoinedJob", "Optimizer", "Step", "count_records", "join"]


def __getattr__(name: str) -> Any:
    # Only those who use tables need the native core.
    match name:
        case "Embedding" | "EmbeddingBag":
            from elasticdl.model.embeddings import layers

            return getattr(layers, name)
        case "Initializer":
            from elasticdl.ps.tables.initializer import Initializer

            return Initializer
        case "Optimizer":
            from elasticdl.ps.tables.optimizer import Optimizer

            return Optimizer
    raise AttributeError(f"module {__name__} has no attribute {name}")
