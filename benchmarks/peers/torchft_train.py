"""The peer torchft: one replica group of one process, fault-tolerant DDP over gloo, as its README shows it.

torchft_lighthouse --min_replicas 1 --quorum_tick_ms 100 --join_timeout_ms 1000
TORCHFT_LIGHTHOUSE=http://127.0.0.1:29510 python benchmarks/peers/torchft_train.py --replica 0
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.utils.data import DataLoader

# torchft sends this machine's name to its peers; all network namespaces have the same one. Set it before the import,
# which makes the name a default argument.
if ADDRESS := os.environ.get("BENCH_ADDRESS"):
    socket.gethostname = lambda: str(ADDRESS)

from torchft import DistributedDataParallel, DistributedSampler, Manager, Optimizer, ProcessGroupGloo

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
import mlp


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=mlp.WIDTHS, default="small")
    parser.add_argument("--replica", type=int, required=True)
    parser.add_argument("--batch", type=int, default=128)
    options = parser.parse_args()
    address = ADDRESS or "127.0.0.1"
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    torch.manual_seed(0)
    signals = record_sigterm()

    module = mlp.forward(options.size)
    inner = mlp.optimizer(module.parameters())

    def state_dict() -> dict[str, Any]:
        return {"model": module.state_dict(), "optimizer": inner.state_dict()}

    def load_state_dict(state: dict[str, Any]) -> None:
        module.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    store = TCPStore(address, 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        # The timeouts of torchft's own DDP example.
        pg=ProcessGroupGloo(timeout=timedelta(seconds=5)),
        timeout=timedelta(seconds=30),
        min_replica_size=1,
        load_state_dict=load_state_dict,
        state_dict=state_dict,
        replica_id=f"bench_{options.replica}",
        store_addr=address,
        store_port=store.port,
        hostname=address,
        rank=0,
        world_size=1,
    )
    model = DistributedDataParallel(manager, module)
    optimizer = Optimizer(manager, inner)
    log = mlp.StepLog.from_environ()
    for features, labels in records(options.replica, options.batch):
        step_before = manager.current_step()
        optimizer.zero_grad()
        mlp.loss(labels, model(features)).backward()
        optimizer.step()
        # A step that was not committed is not a finished step.
        if log is not None and manager.current_step() > step_before:
            log.record_step(step_before)
        if signals:
            break
    manager.shutdown()


def record_sigterm() -> list[int]:
    """Returns a list that SIGTERM appends to."""
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    return signals


def records(replica: int, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
    dataset = mlp.SyntheticRecords()
    sampler = DistributedSampler(
        dataset, replica_rank=replica, num_replica_groups=16, group_rank=0, num_replicas=1, shuffle=True
    )
    while True:
        yield from DataLoader(dataset, batch_size=batch, sampler=sampler, drop_last=True)


if __name__ == "__main__":
    main()
