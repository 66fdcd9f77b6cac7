"""A model file for tests of whole jobs: a few milliseconds a step, with all that makes bits hard to keep.

BatchNorm (buffers), Dropout (random numbers), a batch that no number of workers divides, a short last batch. While
the file `slow` exists each batch takes `pause_s` longer, so that a test has the time it needs and no more.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from elasticdl.data.dataset import Dataset, Metadata
from elasticdl.model.callbacks import Callback
from elasticdl.model.metrics import Accuracy, Metric
from elasticdl.model.mode import Mode
from elasticdl.worker.rounds.donor import StateDonor

FEATURES, CLASSES = 12, 3
BRISK_BATCHES, LATER_PAUSE_S = 100, 0.1
_pauses = count()


class Net(nn.Module):
    def __init__(self, slow: str, pause_s: float, failing: bool, broken: str, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, width)
        self.norm = nn.BatchNorm1d(width, momentum=0.2)
        self.drop = nn.Dropout(0.25)
        self.second = nn.Linear(width, CLASSES)
        self._slow, self._pause_s, self._failing = Path(slow or "/nowhere"), pause_s, failing
        self._broken = Path(broken or "/nowhere")

    def forward(self, features: Tensor) -> Tensor:
        if self.training and self._broken.exists():
            if self._broken.read_text() == "once":
                self._broken.unlink(missing_ok=True)
            raise RuntimeError("this model is broken")
        if self._failing:
            raise RuntimeError("this model always fails")
        if self._pause_s and self._slow.exists():
            _pause(self._pause_s)
        hidden = self.first(features)
        # A slice may hold one record only, which has no variance to train with.
        hidden = self.norm(hidden) if len(features) > 1 or not self.training else hidden
        result: Tensor = self.second(self.drop(torch.relu(hidden)))
        return result


def _pause(pause_s: float) -> None:
    """Sleep, after many batches for longer: a busy machine must not let the job end before the test has looked."""
    time.sleep(pause_s if next(_pauses) < BRISK_BATCHES else max(pause_s, LATER_PAUSE_S))


def forward(
    slow: str = "",
    pause_s: float = 0.02,
    failing: bool = False,
    held: str = "",
    broken: str = "",
    width: int = 24,
    deaf: str = "",
) -> nn.Module:
    """While the file `held` exists no model is made; while `broken` does the model fails, once if the file says so.

    For `deaf` see `_deafen`.
    """
    _deafen(Path(deaf or "/nowhere"))
    while held and Path(held).exists():
        time.sleep(pause_s)
    return Net(slow, pause_s, failing, broken, width)


def _deafen(deaf: Path) -> None:
    """While the file exists, the worker it names hands nothing over: it `closes` connections, or is `silent` on them.

    It trains as well as any other.
    """
    start_transfer, ignored = StateDonor.start_transfer, list[socket.socket]()

    def open_or_not(donor: StateDonor, worker: str, connection: socket.socket) -> None:
        name, _, how = deaf.read_text().partition(" ") if deaf.exists() else ("", "", "")
        if name != os.environ["ELASTICDL_WORKER"]:
            start_transfer(donor, worker, connection)
        elif how == "closes":
            connection.close()
        else:
            ignored.append(connection)

    StateDonor.start_transfer = open_or_not  # type: ignore[method-assign, assignment]


def no_module() -> Any:
    return "no module"


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    return nn.functional.cross_entropy(predictions, labels)


def optimizer(parameters: Iterable[Tensor], lr: float = 0.01) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=lr)


class Examples:
    """Made-up examples that a net can learn; one of them may have features that are not finite."""

    def __init__(self, records: int, nan_at: int) -> None:
        generator = torch.Generator().manual_seed(7)
        self.labels = torch.randint(CLASSES, (records,), generator=generator)
        centres = torch.randn(CLASSES, FEATURES, generator=generator)
        self.features = centres[self.labels] + 0.7 * torch.randn(records, FEATURES, generator=generator)
        if nan_at >= 0:
            self.features[nan_at] = float("nan")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.features[index], self.labels[index]


def custom_data_reader(data_path: str, records: int = 205, nan_at: int = -1) -> Examples:
    return Examples(records, nan_at)


def dataset_fn(dataset: Dataset, mode: Mode, metadata: Metadata) -> Dataset:
    return dataset.map(lambda record: record[0]) if mode is Mode.PREDICTION else dataset


def eval_metrics_fn() -> dict[str, Metric]:
    return {"accuracy": Accuracy()}


class _Scale(Callback):
    """Scales the gradients, so that a worker that does not run the hook has other bits."""

    def on_gradients(self, model: nn.Module, step: int) -> None:
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(1.0 + 0.001 * (step % 7))


def callbacks() -> list[Callback]:
    return [_Scale()]
