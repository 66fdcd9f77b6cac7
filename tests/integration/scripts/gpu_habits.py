"""Habits of training scripts on a GPU: gpu_habits.py HABIT OUTPUT [--slow FILE]

Every worker writes its weights at the end to OUTPUT-<worker>.safetensors. While the file of --slow exists each batch
takes longer, so that a test has the time to disturb the job.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import elasticdl.torch as elastic
from elasticdl.worker.training.numerics import configure_numerics

parser = argparse.ArgumentParser()
parser.add_argument("habit", choices=["plain", "bf16", "fp16", "compile", "loader", "micro"])
parser.add_argument("output")
parser.add_argument("--slow", default="/nowhere")
options = parser.parse_args()
habit, slow = options.habit, Path(options.slow)

configure_numerics(1, "cuda", True)  # as the workers of a reproducible job, also where the script runs alone
torch.manual_seed(3)
images = torch.randn(192, 1, 8, 8)
labels = (images.sum((1, 2, 3)) > 0).long()
dataset = TensorDataset(images, labels)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(0.1), nn.Linear(512, 2)
).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 48)
scaler = torch.amp.GradScaler("cuda", init_scale=2.0**40, growth_interval=5, enabled=habit == "fp16")
network: Any = torch.compile(model) if habit == "compile" else model
precision = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(habit)


def batch_loss(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cuda", dtype=precision, enabled=precision is not None):
        return nn.functional.cross_entropy(network(inputs), targets)


data: Any = dataset
if habit == "loader":
    data = DataLoader(dataset, batch_size=24, shuffle=True, num_workers=2, pin_memory=True)
job = elastic.join(
    network, optimizer, data, global_batch_size=24, epochs=6, seed=5, logical_ranks=4, schedulers=scheduler,
    state={"scaler": scaler} if scaler.is_enabled() else None, warm_up=batch_loss if habit == "compile" else None,
)  # fmt: skip
for step in job:
    for inputs, targets in step:
        assert inputs.is_cuda and targets.is_cuda
        if slow.exists():
            time.sleep(0.1)
        if habit == "micro":
            for part, part_targets in zip(inputs.split(4), targets.split(4), strict=True):
                step.backward(batch_loss(part, part_targets), records=len(part))
        else:
            step.backward(batch_loss(inputs, targets), scaler=scaler)
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()

tensors = {name: value.cpu() for name, value in model.state_dict().items()}
tensors["rate"] = torch.tensor([optimizer.param_groups[0]["lr"]], dtype=torch.float64)
tensors["scale"] = torch.tensor([scaler.get_scale()])
tensors["step"] = torch.tensor([job.step])
tensors["first"] = torch.tensor([int(job.is_first)])
save_file(tensors, f"{options.output}-{job.worker}.safetensors")
