"""Elastic training with Hugging Face's Trainer, and with loops written for Accelerate.

    from elasticdl.huggingface import ElasticTrainer          # instead of transformers.Trainer
    from elasticdl.huggingface import ElasticAccelerator      # instead of accelerate.Accelerator

`elasticdl run --workers 1:4 train.py` makes it elastic; `python train.py` runs it alone, with the same result.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elasticdl.huggingface.accelerator import ElasticAccelerator
    from elasticdl.huggingface.trainer import ElasticTrainer

__all__ = ["ElasticAccelerator", "ElasticTrainer"]


def __getattr__(name: str) -> Any:
    # Loops of Accelerate need no transformers.
    match name:
        case "ElasticAccelerator":
            from elasticdl.huggingface.accelerator import ElasticAccelerator

            return ElasticAccelerator
        case "ElasticTrainer":
            from elasticdl.huggingface.trainer import ElasticTrainer

            return ElasticTrainer
    raise AttributeError(f"module {__name__} has no attribute {name}")
