"""Elastic training with Lightning's Trainer.

    from elasticdl.lightning import ElasticStrategy

    trainer = lightning.Trainer(strategy=ElasticStrategy(), devices=1, max_epochs=10)
    trainer.fit(module, train_dataloader)

`elasticdl run --workers 1:4 train.py` makes it elastic; `python train.py` runs it alone, with the same result.
"""

from elasticdl.lightning.strategy import ElasticStrategy

__all__ = ["ElasticStrategy"]
