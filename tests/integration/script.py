"""A user's training script for `elasticdl run`: script.py OUTPUT EPOCHS BATCH"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

import elasticdl.torch as elastic

sys.path.insert(0, str(Path(__file__).parent))
import tiny

output, epochs, batch = sys.argv[1:]
torch.set_num_threads(1)
torch.manual_seed(3)
model = tiny.forward()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job = elastic.join(
    model, optimizer, tiny.Examples(205, -1), global_batch_size=int(batch), epochs=int(epochs), seed=5, logical_ranks=4
)
for step in job:
    for features, labels in step:
        step.backward(nn.functional.cross_entropy(model(features), labels))
if job.is_first:
    save_file(model.state_dict(), output)
