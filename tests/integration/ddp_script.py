"""An unmodified torchrun script, after PyTorch's tutorial: ddp_script.py DIRECTORY EPOCHS

It knows nothing of ElasticDL: DistributedDataParallel, a snapshot of its own, resumed where there is one. Every epoch
is one step on all rows, so that the result does not depend on the number of processes. While DIRECTORY/slow exists,
epochs are slow and the second half waits; DIRECTORY/fail makes rank 1 raise an exception once, fail-always every time.
DIRECTORY/starts has a line for each process: restarts before it, RANK, LOCAL_RANK, LOCAL_WORLD_SIZE, its first epoch.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: N817

directory, epochs = Path(sys.argv[1]), int(sys.argv[2])
snapshot = directory / "snapshot.pt"

torch.set_default_dtype(torch.float64)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
assert (rank, world) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))

generator = torch.Generator().manual_seed(1)
inputs = torch.randn(60, 3, generator=generator)
targets = inputs @ torch.tensor([[1.0], [-2.0], [0.5]])
torch.manual_seed(0)
plain = torch.nn.Linear(3, 1)
model = DDP(plain)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

first_epoch = 0
if snapshot.exists():
    saved = torch.load(snapshot, weights_only=True)
    plain.load_state_dict(saved["model"])
    first_epoch = saved["epoch"]
restarts = os.environ["TORCHELASTIC_RESTART_COUNT"]
print(f"rank {rank} of {world} begins at epoch {first_epoch}, start {restarts}")
with (directory / "starts").open("a") as starts:
    starts.write(f"{restarts} {rank} {os.environ['LOCAL_RANK']} {os.environ['LOCAL_WORLD_SIZE']} {first_epoch}\n")

for epoch in range(first_epoch, epochs):
    optimizer.zero_grad()
    # DDP takes the mean of the gradients of all ranks: together they are those of all rows.
    errors = (model(inputs[rank::world]) - targets[rank::world]) ** 2
    (errors.sum() * world / len(inputs)).backward()
    optimizer.step()
    if rank == 0:
        torch.save({"model": plain.state_dict(), "epoch": epoch + 1}, directory / "snapshot.new")
        os.replace(directory / "snapshot.new", snapshot)
        print(f"epoch {epoch} of {world} processes")
    if rank == 1 and (directory / "fail-always").exists():
        raise ValueError("always wrong")
    if rank == 1 and (directory / "fail").exists():
        (directory / "fail").unlink()
        raise ValueError("wrong once")
    while (directory / "slow").exists():
        time.sleep(0.02)
        if epoch < epochs // 2:
            break

dist.destroy_process_group()
# A thread of gloo may still release its last work while Python finalizes, which aborts the process (torch 2.13).
sys.stdout.flush()
os._exit(0)
