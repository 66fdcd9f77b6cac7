"""How well reading overlaps computing: a dataset that takes 4 ms an item, by `join` and by a DataLoader's own loop.

    python benchmarks/slow_dataset.py [--quick] [--json FILE]

Both train the same small model in this process, from the same DataLoader. The time is that of a complete epoch,
including the start of loader processes. The two take turns; the ratio is the median of the ratios of neighbours.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from table import Row, machine, show, write
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

import elasticdl.torch as elastic

ITEM_S = 0.004
BATCH = 32
GOAL = 0.95

Pair = tuple[Tensor, Tensor]


def read_item(number: int) -> Pair:
    time.sleep(ITEM_S)
    return torch.full((16,), float(number)), torch.tensor(float(number % 2))


class SlowItems(Dataset[Pair]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> Pair:
        return read_item(number)


class SlowStream(IterableDataset[Pair]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[Pair]:
        worker = get_worker_info()
        number, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        yield from (read_item(item) for item in range(number, self.count, step))


def build() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    return model, torch.optim.SGD(model.parameters(), lr=1e-6)


def plain_items_per_s(loader: DataLoader[Pair], records: int) -> float:
    """Returns the items per second of torch's own loop."""
    model, optimizer = build()
    started_at = time.perf_counter()
    for features, labels in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(features).squeeze(1), labels).backward()
        optimizer.step()
    return records / (time.perf_counter() - started_at)


def joined_items_per_s(loader: DataLoader[Pair], records: int, logical_ranks: int) -> float:
    """Returns the items per second of the same loop with `join`."""
    model, optimizer = build()
    started_at, is_stream = time.perf_counter(), isinstance(loader.dataset, IterableDataset)
    job = elastic.join(
        model, optimizer, loader, logical_ranks=logical_ranks, records_per_epoch=records if is_stream else None
    )
    for step in job:
        for features, labels in step:
            step.backward(nn.functional.mse_loss(model(features).squeeze(1), labels))
    return records / (time.perf_counter() - started_at)


def compare(
    name: str, create_loader: Callable[[], DataLoader[Pair]], records: int, logical_ranks: int, turns: int
) -> Row:
    ours, peers = [], []
    for _ in range(turns):
        peers.append(plain_items_per_s(create_loader(), records))
        ours.append(joined_items_per_s(create_loader(), records, logical_ranks))
    ratio = statistics.median(our / peer for our, peer in zip(ours, peers, strict=True))
    goal = f"{ratio:.3f} of it ≥ {GOAL}"
    return Row(name, "items/s", statistics.median(ours), statistics.median(peers), "DataLoader", goal, ratio >= GOAL)


def measure(records: int, turns: int) -> list[Row]:
    """Returns the rows of this benchmark, also for your_code.py."""

    def loader_factory(dataset: Dataset[Pair], num_workers: int) -> Callable[[], DataLoader[Pair]]:
        return lambda: DataLoader(dataset, batch_size=BATCH, num_workers=num_workers)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create 4 worker processes")  # on a small machine
        return [
            compare("4 ms an item, 4 loader processes", loader_factory(SlowItems(records), 4), records, 1, turns),
            compare("the same, 4 logical ranks", loader_factory(SlowItems(records), 4), records, 4, turns),
            compare(
                "4 ms an item, no loader process", loader_factory(SlowItems(records // 4), 0), records // 4, 1, turns
            ),
            compare(
                "a stream, 4 loader processes, 4 logical ranks",
                loader_factory(SlowStream(records), 4),
                records,
                4,
                turns,
            ),
        ]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer items")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows = measure(*((512, 1) if options.quick else (2048, 5)))
    show("Reading a slow dataset", rows, notes=[machine()])
    if options.json:
        write(options.json, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
