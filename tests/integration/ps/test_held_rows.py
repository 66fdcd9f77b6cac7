"""Rows in a model without ps: from a checkpoint, and from an export whose tables are in separate files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests import native

native.require()

import elasticdl.torch as elastic  # noqa: E402
from elasticdl.checkpoint.captured_state import capture_state, restore_state  # noqa: E402
from elasticdl.checkpoint.export import export_with_program, find_weights  # noqa: E402
from elasticdl.checkpoint.manifest import read_manifest  # noqa: E402
from elasticdl.spec import JobSpec, ModelSpec  # noqa: E402
from elasticdl.worker.embeddings import hybrid  # noqa: E402
from elasticdl.worker.embeddings.hybrid import PsTableStore  # noqa: E402
from elasticdl.worker.embeddings.tables import restore_rows  # noqa: E402
from tests.integration.ps.fleet import LocalFleet  # noqa: E402

IDS = torch.tensor([5, -7, 3, 2**40])
TIMES = torch.tensor([2.0, 1.0, 1.0, 0.0])


class Model(nn.Module):
    """`sums` is a layer of ours, `squares` was a plain one in training."""

    def __init__(self) -> None:
        super().__init__()
        self.sums = elastic.EmbeddingBag(2, combiner="sum", initializer="zeros")
        self.squares = nn.Embedding(10, 1)
        self.dense = nn.Linear(1, 1)

    def forward(self, ids: Tensor) -> Tensor:
        return self.sums(ids.unsqueeze(1))


class Directory:
    def __init__(self, checkpoints: Path) -> None:
        self._checkpoints = checkpoints

    def checkpoints(self, spec: JobSpec) -> Path:
        return self._checkpoints


class Master:
    """The part of a connection to the master that `PsTableStore` needs for an export."""

    def __init__(self, checkpoints: Path) -> None:
        self.directory = Directory(checkpoints)

    def add_fleet_listener(self, listener: Any) -> None: ...


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    fleet = LocalFleet(tmp_path / "checkpoints", 2)
    fleet.push([5, -7, 3])
    fleet.push([5])
    path = fleet.write_checkpoint(1)
    fleet.close()
    return path


def test_a_model_has_the_rows_of_a_checkpoint(checkpoint: Path) -> None:
    model = Model()
    captured = capture_state(nn.ModuleDict({"dense": model.dense}), None, 1, 0)

    restore_state(restore_rows(model, captured, checkpoint), model, None)

    assert torch.equal(model(IDS), -TIMES.unsqueeze(1).expand(4, 2))
    assert model.squares.weight[3].item() == pytest.approx(-1.0)
    assert model.squares.weight[4].item() == 0.0


def test_large_tables_are_exported_beside_the_model_and_read_from_there(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = JobSpec(name="job", model=ModelSpec(definition="model.forward"))
    clients = PsTableStore.open(spec, Master(checkpoint.parent))  # type: ignore[arg-type]
    assert clients.export_writer() is None, "small ones are in the model"
    monkeypatch.setattr(hybrid, "MAX_MODEL_BYTES", 10)
    shards = clients.export_writer()
    assert shards is not None
    target = tmp_path / "out"

    export_with_program(shards, nn.ModuleDict({"dense": nn.Linear(1, 1)}), target, {})
    model = Model()
    restore_state(restore_rows(model, *find_weights(target)), model, None)

    document = read_manifest(target / "model.json")
    assert document.extra["program"] is None and "rows.json names them" in document.extra["why_no_program"]
    assert {path.name for path in target.iterdir()} == {"model.json", *document.files}
    assert torch.equal(model(IDS), -TIMES.unsqueeze(1).expand(4, 2))
    assert model.squares.weight[3].item() == pytest.approx(-1.0)
