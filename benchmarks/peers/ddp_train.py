"""The peer under torchrun: plain DistributedDataParallel, which resumes from a checkpoint as scripts for torchrun do.

torchrun --nproc_per_node=2 benchmarks/peers/ddp_train.py --size small --global-batch 256
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
import mlp


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=mlp.WIDTHS, default="small")
    parser.add_argument("--global-batch", type=int, default=256)
    parser.add_argument("--micro-batches", type=int, default=1, help="backward passes per worker and step")
    parser.add_argument("--steps", type=int, default=1 << 40)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--checkpoint-steps", type=int, default=50)
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    torch.manual_seed(0)
    dist.init_process_group("gloo")

    model = mlp.forward(options.size)
    optimizer = mlp.optimizer(model.parameters())
    step = load(options.checkpoint, model, optimizer)
    replicated = DistributedDataParallel(model)
    batches = records(options.global_batch // dist.get_world_size())
    log = mlp.StepLog.from_environ()
    while step < options.steps:
        train_step(replicated, optimizer, *next(batches), options.micro_batches)
        if log is not None:
            log.record_step(step)
        step += 1
        if options.checkpoint and step % options.checkpoint_steps == 0 and dist.get_rank() == 0:
            save(options.checkpoint, model, optimizer, step)
    dist.destroy_process_group()


def train_step(
    model: DistributedDataParallel, optimizer: torch.optim.Optimizer, features: Tensor, labels: Tensor, parts: int
) -> None:
    optimizer.zero_grad()
    pieces = list(zip(features.chunk(parts), labels.chunk(parts), strict=True))
    for number, (piece, piece_labels) in enumerate(pieces):
        with model.no_sync() if number < len(pieces) - 1 else nullcontext():
            (mlp.loss(piece_labels, model(piece)) * (len(piece_labels) / len(labels))).backward()
    optimizer.step()


def records(batch: int) -> Iterator[tuple[Tensor, Tensor]]:
    dataset = mlp.SyntheticRecords()
    sampler: DistributedSampler[mlp.Record] = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=batch, sampler=sampler, drop_last=True)
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def load(path: Path | None, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    if path is None or not path.exists():
        return 0
    saved = torch.load(path, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return int(saved["step"])


def save(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    staging = path.with_suffix(".new")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, staging)
    staging.replace(path)


if __name__ == "__main__":
    main()
