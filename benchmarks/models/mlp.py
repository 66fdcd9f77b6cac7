"""The benchmarks' model: an MLP on synthetic records, small (1.3 M weights) or large (25 M).

It is a model file for `elasticdl train`, and the peers' scripts import it too, so that all train the same model.
Each process writes its finished steps to a file in $BENCH_STEPS_DIR.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

FEATURES = 512
CLASSES = 10
RECORDS = 1 << 20  # an epoch longer than any benchmark
DISTINCT_RECORDS = 4096  # the others repeat them
WIDTHS = {"small": (896, 896), "large": (3400, 3400, 3400)}

Record = tuple[Tensor, Tensor]


class SyntheticRecords(torch.utils.data.Dataset[Record]):
    """Records in memory, because reading them is not measured."""

    def __init__(self, records: int = RECORDS) -> None:
        generator = torch.Generator().manual_seed(7)
        self._features = torch.randn(DISTINCT_RECORDS, FEATURES, generator=generator)
        self._labels = torch.randint(CLASSES, (DISTINCT_RECORDS,), generator=generator)
        self._records = records

    def __len__(self) -> int:
        return self._records

    def __getitem__(self, index: int) -> Record:
        return self._features[index % DISTINCT_RECORDS], self._labels[index % DISTINCT_RECORDS]


def forward(size: str = "small") -> nn.Module:
    layers: list[nn.Module] = []
    inputs = FEATURES
    for width in WIDTHS[size]:
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, CLASSES))


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    return nn.functional.cross_entropy(predictions, labels)


def optimizer(parameters: Any, lr: float = 1e-3) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=lr)


def dataset_fn(dataset: Any, mode: Any, metadata: Any) -> Any:
    return dataset


def custom_data_reader(data_path: str, records: int = RECORDS) -> SyntheticRecords:
    return SyntheticRecords(records)


class StepLog:
    """Writes a line per finished step: the monotonic clock in nanoseconds (the same for all processes) and the step.

    Then it pauses if asked to, as if a device of the worker computed and the cores were free.
    """

    def __init__(self, directory: Path, pause_s: float = 0.0) -> None:
        self._pause_s = pause_s
        directory.mkdir(parents=True, exist_ok=True)
        # Unbuffered: what a killed process had finished must be in the file.
        self._file = (directory / f"{os.getpid()}.steps").open("ab", buffering=0)

    def record_step(self, step: int) -> None:
        self._file.write(b"%d %d\n" % (time.monotonic_ns(), step))
        if self._pause_s:
            time.sleep(self._pause_s)

    @classmethod
    def from_environ(cls) -> StepLog | None:
        directory = os.environ.get("BENCH_STEPS_DIR")
        return cls(Path(directory), float(os.environ.get("BENCH_PAUSE_S", "0"))) if directory else None


def callbacks() -> list[Any]:
    from elasticdl.model.callbacks import Callback

    log = StepLog.from_environ()

    class Recorder(Callback):
        def on_step_end(self, step: int, loss: float) -> None:
            if log is not None:
                log.record_step(step)

    return [Recorder()]
