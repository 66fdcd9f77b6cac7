"""The export of the trained model: the one after the last step, or the best one that was evaluated."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from elasticdl.checkpoint import manifest
from elasticdl.checkpoint.captured_state import restore_state
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
    """The part of a model's tables that an export uses."""

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
    context: WorkerContext,
    contract: Contract,
    trained: ModelToExport,
    batch: Batch | None,
    device: torch.device,
) -> None:
    """Export the model, or the best one that was evaluated, to `path`.

    `batch` is a sample of the features. Tables that are too large for the model are written beside it.
    """
    sample: Any = tensors.move_batch(batch, device).features if batch is not None else None
    best = find_best_checkpoint(trained.callbacks, context.master.directory.checkpoints(context.spec), trained.step)
    if best is not None:
        _export_checkpoint(path, context.spec, contract, best, trained.tables, sample, device)
        return
    extra = export_metadata(context.spec, trained.step, trained.records)
    write_tables = trained.tables.export_writer()
    if write_tables is not None:
        export_with_program(write_tables, trained.model, path, extra, contract.model_files())
        return
    with trained.tables.full_model():
        contract.export(make_eager(trained.model), sample, path, extra)


def find_best_checkpoint(callbacks: Sequence[Callback], directory: AnyPath, last: int) -> AnyPath | None:
    """The checkpoint of the best step, if a callback exports the best model and it is not the last one itself."""
    exporters = [callback for callback in callbacks if isinstance(callback, BestMetric) and callback.exports_best]
    if not exporters or exporters[0].best_step in (None, last):
        return None
    step = exporters[0].best_step
    assert step is not None
    path = directory / manifest.checkpoint_name(step)
    if path in manifest.list_checkpoints(directory):
        return path
    _log.warning(
        "%s was best at step %d, of which there is no checkpoint; the model of step %d is exported. "
        "Write checkpoints at the steps that are evaluated (--checkpoint_steps, --evaluation_steps), and keep more",
        exporters[0].metric, step, last,
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
    write_tables = tables.export_writer(checkpoint)
    captured, directory = find_weights(checkpoint)
    if write_tables is None:
        captured = restore_rows(model, captured, directory)
    restore_state(captured, model.to(device), None)
    extra = export_metadata(spec, captured.step, captured.records)
    if write_tables is not None:
        export_with_program(write_tables, model, path, extra, contract.model_files())
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
