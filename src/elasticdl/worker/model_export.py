"""The export of the trained model: the one after the last step, or the best one that was evaluated."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from elasticdl.checkpoint import captured_state as images
from elasticdl.checkpoint import manifest
from elasticdl.checkpoint.export import ExportedProgram, export_with_program, find_weights
from elasticdl.data.dataset import Batch
from elasticdl.model import tensors
from elasticdl.model.callbacks import BestMetric, Callback
from elasticdl.model.compiled import make_eager
from elasticdl.model.contract import Contract
from elasticdl.spec import JobSpec
from elasticdl.storage.paths import AnyPath
from elasticdl.worker.context import WorkerContext
from elasticdl.worker.embeddings.tables import restore_rows

_log = logging.getLogger(__name__)


class ExportableTables(Protocol):
    """What is needed of a model's tables."""

    def export_writer(self, checkpoint: AnyPath | None = None) -> Callable[[Path], ExportedProgram] | None: ...
    def full_model(self) -> AbstractContextManager[None]: ...


class ModelToExport(NamedTuple):
    """A model after its last step."""

    model: nn.Module
    tables: ExportableTables
    step: int
    records: int
    callbacks: Sequence[Callback]


def export_model(
    path: AnyPath,
    line: WorkerContext,
    contract: Contract,
    trained: ModelToExport,
    batch: Batch | None,
    device: torch.device,
) -> None:
    """`batch` is a sample of the features. Tables that are too large for the model lie beside it."""
    sample: Any = tensors.move_batch(batch, device).features if batch is not None else None
    best = find_best_checkpoint(trained.callbacks, line.master.directory.checkpoints(line.spec), trained.step)
    if best is not None:
        _export_checkpoint(path, line.spec, contract, best, trained.tables, sample, device)
        return
    extra = export_metadata(line.spec, trained.step, trained.records)
    shards = trained.tables.export_writer()
    if shards is not None:
        export_with_program(shards, trained.model, path, extra, contract.model_files())
        return
    with trained.tables.full_model():
        contract.export(make_eager(trained.model), sample, path, extra)


def find_best_checkpoint(callbacks: Sequence[Callback], directory: AnyPath, last: int) -> AnyPath | None:
    """Of the best step, where a callback wants that exported and it is not the last one itself."""
    wanted = [one for one in callbacks if isinstance(one, BestMetric) and one.exports_best]
    if not wanted or wanted[0].best_step in (None, last):
        return None
    step = wanted[0].best_step
    assert step is not None
    path = directory / manifest.checkpoint_name(step)
    if path in manifest.list_checkpoints(directory):
        return path
    _log.warning(
        "%s was best at step %d, of which there is no checkpoint; the model of step %d is exported. "
        "Write checkpoints at the steps that are evaluated (--checkpoint_steps, --evaluation_steps), and keep more",
        wanted[0].metric, step, last,
    )  # fmt: skip
    return None


def _export_checkpoint(
    path: AnyPath,
    spec: JobSpec,
    contract: Contract,
    checkpoint: AnyPath,
    tables: ExportableTables,
    sample: Any,
    device: torch.device,
) -> None:
    model = make_eager(contract.build_model())
    shards = tables.export_writer(checkpoint)
    found, place = find_weights(checkpoint)
    if shards is None:
        found = restore_rows(model, found, place)
    images.restore_state(found, model.to(device), None)
    extra = export_metadata(spec, found.step, found.records)
    if shards is not None:
        export_with_program(shards, model, path, extra, contract.model_files())
    else:
        contract.export(model, sample, path, extra)


def export_metadata(spec: JobSpec, step: int, records: int) -> dict[str, Any]:
    assert spec.model is not None
    return {
        "job": spec.name,
        "model_def": spec.model.definition,
        "model_params": spec.model.params,
        "step": step,
        "records": records,
    }
