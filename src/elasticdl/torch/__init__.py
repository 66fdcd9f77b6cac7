"""Elastic training in a person's own script, with a few lines.

    import elasticdl.torch as elastic

    job = elastic.join(model, optimizer, dataset, global_batch_size=64, epochs=2)
    for step in job:                    # each step of the plan, whatever the workers do
        for features, labels in step:   # this worker's share, one logical rank at a time
            step.backward(criterion(model(features), labels))

`elasticdl run --workers 1:4 train.py` makes it elastic; `python train.py` runs it alone.
"""

from elasticdl.torch.join import Job, join
from elasticdl.worker.step import Step

__all__ = ["Job", "Step", "join"]
