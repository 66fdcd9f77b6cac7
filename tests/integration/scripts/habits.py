"""Ordinary habits of PyTorch in a training script: habits.py HABIT OUTPUT [--slow FILE]

Every worker writes its weights and learning rates at the end to OUTPUT-<worker>.safetensors. While the file of --slow
exists each batch takes longer, so that a test has the time to disturb the job.
"""

from __future__ import annotations

import argparse
import atexit
import multiprocessing
import sys
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

import elasticdl.torch as elastic

parser = argparse.ArgumentParser()
parser.add_argument("habit")
parser.add_argument("output")
parser.add_argument("--slow", default="/nowhere")
parser.add_argument("--epochs", type=int, default=4)
options = parser.parse_args()
habit, slow = options.habit, Path(options.slow)
ODD = ("complex", "tied", "mixed", "sparse")
EXPLICIT = (
    "own-scheduler", "own-schedule", "stepped-twice", "explicit", "unknown-scheduler", "break-between", "uneven",
)  # fmt: skip


class ComplexModel(nn.Module):
    """Weights and a buffer of complex numbers, in both precisions."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 4, dtype=torch.complex64))
        self.head = nn.Parameter(torch.randn(4, 2, dtype=torch.complex128))
        self.register_buffer("last", torch.zeros(2, dtype=torch.complex128))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        hidden = features.to(torch.complex64) @ self.weight.conj()
        output = hidden.to(torch.complex128) @ self.head
        self.get_buffer("last").copy_(output.detach().mean(0))
        return output.abs().float()


class TiedModel(nn.Module):
    """Two layers with one weight, and a head that is its transpose."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.again = nn.Linear(6, 6), nn.Linear(6, 6)
        self.again.weight = self.body.weight
        self.head = nn.Linear(6, 2)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        hidden = self.again(torch.tanh(self.body(features)))
        logits: torch.Tensor = self.head(nn.functional.linear(hidden, self.body.weight.t()))
        return logits


class MixedModel(nn.Module):
    """Layers of three types, with a norm whose buffers are float64 and int64."""

    def __init__(self) -> None:
        super().__init__()
        self.short, self.single = nn.Linear(6, 5).to(torch.bfloat16), nn.Linear(5, 3)
        self.long, self.norm = nn.Linear(3, 2).double(), nn.BatchNorm1d(2).double()

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.single(self.short(features.to(torch.bfloat16)).float()))
        logits: torch.Tensor = self.norm(self.long(hidden.double())).float()
        return logits


class SparseModel(nn.Module):
    """An embedding whose gradients are sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.head = nn.Embedding(7, 4, sparse=True), nn.Linear(4, 2)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.rows((features * 2).round().abs().clamp(max=6).long()).sum(1))
        return logits


torch.manual_seed(3)
features = torch.randn(96, 6)
labels = (features.sum(1) > 0).long()
dataset = torch.utils.data.TensorDataset(features, labels)
model: Any = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
if habit in ODD:
    model = {"complex": ComplexModel, "tied": TiedModel, "mixed": MixedModel, "sparse": SparseModel}[habit]()
if habit.startswith("evaluate"):
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.Linear(16, 2))
if habit == "break-norm":
    model.append(nn.BatchNorm1d(2))  # its buffers are those of the first worker
optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
keywords: dict[str, Any] = {}
scheduler: Any = None
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40, growth_interval=5, enabled=habit == "scaler")
average = torch.optim.swa_utils.AveragedModel(model)

if habit == "scheduler":
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10, gamma=0.5)
    keywords = {"schedulers": scheduler}
elif habit in ("own-scheduler", "unknown-scheduler", "stepped-twice"):
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [8, 16, 24], gamma=0.5)
    keywords = {"own-scheduler": {"state": {"scheduler": scheduler}}, "stepped-twice": {"schedulers": scheduler}}.get(
        habit, {}
    )
elif habit == "own-schedule":
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=40)
    keywords = {"state": {"scheduler": scheduler}}
elif habit in ("average", "break-one"):
    keywords = {"state": {"average": average}}
elif habit == "scaler":
    keywords = {"state": {"scaler": scaler}}
elif habit == "frozen":
    model[0].requires_grad_(False)


class Private:
    """State that a worker keeps to itself."""

    rate = 0.1


def count_records(batch: tuple[torch.Tensor, torch.Tensor]) -> int:
    return len(batch[0])


def evaluate(number: int) -> None:
    """Evaluation as scripts have it, with random numbers, and in one habit with processes of its own."""
    if habit == "evaluate-none" or number % 3 or not (habit == "evaluate-all" or job.is_first):
        return
    marker = Path(f"{options.output}-evaluating-{job.worker}")
    marker.touch()
    processes = 2 if habit == "evaluate-processes" else 0
    loader = torch.utils.data.DataLoader(dataset, batch_size=20, shuffle=True, num_workers=processes)
    if processes:
        with multiprocessing.get_context("fork").Pool(2) as pool:  # ended by SIGTERM
            assert sum(pool.map(count_records, list(loader))) == len(dataset)
    model.eval()
    with torch.no_grad():
        total = sum(
            nn.functional.cross_entropy(model(inputs + 0.1 * torch.randn(6)), targets).item()
            for inputs, targets in loader
        )
    model.train(habit != "evaluate-forgetting")
    if slow.exists():
        time.sleep(0.5)
    with open(f"{options.output}-evaluations.txt", "a") as file:
        file.write(f"{number} {total!r}\n")
    marker.unlink()


job = elastic.join(
    model, optimizer, dataset, global_batch_size=12, epochs=options.epochs, seed=5, logical_ranks=4, **keywords
)
if habit.startswith("evaluate"):
    evaluate(-3)
for step in job:
    if habit in ("break-between", "uneven"):
        # A first update, of which two habits make more, or less, than the other worker does.
        is_odd = job.worker == "worker-1" and step.number == 9
        if habit == "break-between" or is_odd:
            for inputs, targets in step:
                step.backward(nn.functional.cross_entropy(model(inputs), targets))
            optimizer.step()
            if habit == "break-between" and is_odd:
                break
    if habit == "frozen" and step.number == 5:
        model[0].requires_grad_(True)
    for inputs, targets in step:
        if slow.exists():
            time.sleep(0.2)
        if habit == "micro":
            for part, part_targets in zip(inputs.split(2), targets.split(2), strict=True):
                step.backward(nn.functional.cross_entropy(model(part), part_targets), records=len(part))
            continue
        loss = nn.functional.cross_entropy(model(inputs), targets)
        if habit == "break-inside" and step.number == 7 and job.worker == "worker-1":
            break
        step.backward(loss, scaler=scaler if habit == "scaler" else None)
        if habit == "early-clip":
            nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    else:
        if habit == "break-one":
            optimizer.step()
            average.update_parameters(model)  # also in the update that nobody applies
        if habit.startswith("evaluate"):
            evaluate(step.number)
        if habit == "clip":
            nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        elif habit in EXPLICIT:
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
            optimizer.zero_grad()
        elif habit == "average":
            optimizer.step()
            average.update_parameters(model)
        elif habit == "scaler":
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        elif habit == "private-rate":
            # Grows by what only this worker remembers: a newcomer begins at 0.1 again.
            Private.rate *= 1.01
            optimizer.param_groups[0]["lr"] = Private.rate
        elif habit == "parted" and step.number == 20 and job.worker == "worker-1":
            with torch.no_grad():
                model[2].bias.add_(1e-3)
        elif habit == "stop" and step.number == 9 and job.worker == "worker-0":
            job.stop("good enough")
        elif step.number == 9 and (
            habit in ("break", "break-norm") or (habit == "break-one" and job.worker == "worker-1")
        ):
            break
        elif habit == "clear":
            optimizer.zero_grad()
        continue
    break
if habit.startswith("evaluate"):
    evaluate(job.step + 1)
if habit == "exit":
    atexit.register(Path(f"{options.output}-exited-{job.worker}").touch)
    sys.exit(0)
if habit == "exit-1":
    sys.exit("no good")
tensors = {
    name: (torch.view_as_real(value) if value.is_complex() else value).clone()
    for name, value in model.state_dict().items()
}
tensors["rates"] = torch.tensor([group["lr"] for group in optimizer.param_groups], dtype=torch.float64)
tensors["scale"] = torch.tensor([scaler.get_scale()])
tensors["step"] = torch.tensor([job.step])
tensors["first"] = torch.tensor([int(job.is_first)])
if habit not in ODD:
    tensors |= {f"average.{name}": value.clone() for name, value in average.state_dict().items()}
save_file(tensors, f"{options.output}-{job.worker}.safetensors")
