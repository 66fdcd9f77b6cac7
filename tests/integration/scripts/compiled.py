"""A compiled model: compiled.py OUTPUT warm|cold SLOW

Every worker has a cache of its own, so that each compiles anew. It trains as long as the file SLOW exists. At its end
it writes to OUTPUT-<worker>.json how long joining took, and when each of its steps ended.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import cast

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="cache-", dir=Path(sys.argv[1]).parent)

import torch
from torch import nn

import elasticdl.torch as elastic

output, kind, slow = sys.argv[1], sys.argv[2], Path(sys.argv[3])
torch.manual_seed(3)
features = torch.randn(40_000, 6)
dataset = torch.utils.data.TensorDataset(features, (features.sum(1) > 0).long())
model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 2))
compiled = cast(nn.Module, torch.compile(model))


def batch_loss(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(compiled(inputs), targets)


began = time.monotonic()
job = elastic.join(
    compiled, torch.optim.SGD(model.parameters(), lr=0.1), dataset, global_batch_size=10, epochs=1, logical_ranks=4,
    warm_up=batch_loss if kind == "warm" else None,
)  # fmt: skip
joined_s = time.monotonic() - began
ends = []
for step in job:
    for inputs, targets in step:
        if slow.exists():
            time.sleep(0.02)
        step.backward(batch_loss(inputs, targets))
    ends.append(time.time())
    if not slow.exists() and len(ends) >= 5:
        job.stop("enough")
Path(f"{output}-{job.worker}.json").write_text(json.dumps({"joined_s": joined_s, "ends": ends}))
