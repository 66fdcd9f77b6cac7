"""Measures a trained model in a process of its own, which may import torch.

Run as `python -m elasticdl.ctr.report.measure`, with a MeasurementRequest as JSON on standard input.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import elasticdl
from elasticdl import atomic
from elasticdl.checkpoint import captured_state as images
from elasticdl.checkpoint.export import PROGRAM_FILE, find_weights
from elasticdl.ctr.models.job import CtrJob
from elasticdl.ctr.report.importance import permutation_importances, sample_rows
from elasticdl.ctr.report.measurement import MeasurementRequest, ModelMeasurement
from elasticdl.ctr.report.metrics import Floats, calibration_bins, compute_metrics, probability_histogram, roc_curve
from elasticdl.data.dataset import Dataset, Mode
from elasticdl.data.sources import open_source
from elasticdl.errors import ElasticDLError, ModelError, SpecError
from elasticdl.features.preprocessing.preprocessor import PREPROCESSOR_FILE
from elasticdl.model.evaluation import inference_mode
from elasticdl.worker.embeddings.tables import restore_rows


class TrainedModel:
    """Computes scores by the exported program if there is one, otherwise by the model with its weights."""

    def __init__(
        self, directory: Path, files_directory: Path, step: int, module: nn.Module, *, uses_exported_program: bool
    ) -> None:
        self.directory, self.files_directory, self.step = directory, files_directory, step
        self.job = CtrJob(files_directory)
        self.uses_exported_program = uses_exported_program
        self._module = module

    @classmethod
    def load(cls, directory: Path, params: dict[str, Any]) -> TrainedModel:
        """Loads an export, a checkpoint, or the newest one in a directory; `params` go beside those of its job.json."""
        image, directory = find_weights(directory)
        files_directory = _find_files_directory(directory)
        uses_exported_program = (directory / PROGRAM_FILE).exists()
        if uses_exported_program:
            module: nn.Module = torch.export.load(directory / PROGRAM_FILE).module()
        else:
            module = CtrJob(files_directory).forward(**params)
            images.restore_state(restore_rows(module, image, directory), module, None)
        return cls(directory, files_directory, image.step, module, uses_exported_program=uses_exported_program)

    def score(self, features: Any) -> Floats:
        """Returns logits. Raises ModelError if one is not finite."""
        if self.uses_exported_program:  # exported for evaluation; its mode cannot be changed
            with torch.no_grad():
                predictions = self._module(features)
        else:
            with inference_mode(self._module):
                predictions = self._module(features)
        if not isinstance(predictions, dict) or "score" not in predictions:
            raise ModelError(f"{self.directory}: expected predictions with a 'score', as CTR models give")
        scores: Floats = predictions["score"].reshape(-1).float().numpy()
        if not np.isfinite(scores).all():
            raise ModelError(f"{self.directory}: the model gives scores that are not finite")
        return scores

    @property
    def parameter_count(self) -> int:
        """The number of learned parameters, with the rows of tables in files."""
        tensors = [tensor for tensor in self._module.state_dict().values() if tensor.is_floating_point()]
        return sum(int(tensor.numel()) for tensor in tensors) + _count_stored_parameters(self.directory)


def _find_files_directory(directory: Path) -> Path:
    """Finds the directory of preprocessor.json: a checkpoint keeps the files of its model in one of its own."""
    for candidate in (directory, directory / "files"):
        if (candidate / PREPROCESSOR_FILE).exists():
            return candidate
    raise SpecError(
        f"{directory}: no {PREPROCESSOR_FILE} beside the model: expected one that was trained from a ctr.yaml"
    )


def _count_stored_parameters(directory: Path) -> int:
    """Counts the parameters of tables in files beside the model."""
    from elasticdl.ps.snapshots import exported_tables  # needs the native core

    if not (directory / exported_tables.INDEX_FILE).exists():
        return 0
    tables = exported_tables.ExportedTables.open(directory).tables.values()
    return sum(table.rows * table.spec.columns for table in tables)


BATCH_ROWS = 8192

ReportProgress = Callable[[str, float], None]


def measure_model(request: MeasurementRequest, progress: ReportProgress) -> ModelMeasurement:
    """Scores the validation and test rows, and permutes columns of the last of them.

    `progress` is called with the current activity and the fraction of all rows that are scored.
    """
    trained = TrainedModel.load(request.model, request.params)
    uris = {"validation": request.validation, "test": request.test}
    datasets = {name: _open_dataset(trained, request, uri) for name, uri in uris.items() if uri is not None}
    if not datasets:
        raise SpecError("no rows are left to evaluate the model on; give ctr.yaml a split with test rows, or `test`")
    evaluated_on = list(datasets)[-1]
    columns = list(trained.job.preprocessor.columns)
    sample = sample_rows(len(datasets[evaluated_on].source), request.rows, request.seed)
    counts = {name: len(dataset.source) for name, dataset in datasets.items()}
    total = sum(counts.values()) + len(sample) * len(columns) * request.repeats
    before = 0
    results: dict[str, tuple[Floats, Floats]] = {}
    for name, dataset in datasets.items():
        row_progress = _progress_of_rows(progress, f"scoring {name} rows", before, 1, total)
        results[name] = _score_all(trained, dataset, row_progress)
        before += counts[name]
    scores, labels = results[evaluated_on]
    importances = permutation_importances(
        lambda rows: _score_batches(trained, datasets[evaluated_on], rows, sample),
        datasets[evaluated_on].read(sample),
        labels[sample], columns, request.repeats, request.seed,
        _progress_of_rows(progress, "permuting columns", before, len(sample), total),
    )  # fmt: skip
    return ModelMeasurement(
        model=str(trained.directory),
        files=str(trained.files_directory),
        step=trained.step,
        uses_exported_program=trained.uses_exported_program,
        parameters=trained.parameter_count,
        validation=compute_metrics(*results["validation"]) if "validation" in results else None,
        test=compute_metrics(*results["test"]) if "test" in results else None,
        evaluated_on="test" if evaluated_on == "test" else "validation",
        roc=roc_curve(scores, labels),
        calibration=calibration_bins(scores, labels),
        histogram=probability_histogram(scores, labels),
        importance=importances,
        importance_rows=len(sample),
        importance_repeats=request.repeats,
        seed=request.seed,
        versions={
            "elasticdl": elasticdl.__version__,
            "torch": str(torch.__version__),
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    )


def _open_dataset(trained: TrainedModel, request: MeasurementRequest, uri: str) -> Dataset:
    source = open_source(uri, request.data, request.index)
    return trained.job.dataset(Dataset(source, Mode.EVALUATION), Mode.EVALUATION)


def _progress_of_rows(
    progress: ReportProgress, activity: str, before: int, rows_each: int, total: int
) -> Callable[[int], None]:
    return lambda done: progress(activity, (before + rows_each * done) / total)


def _score_all(trained: TrainedModel, dataset: Dataset, progress: Callable[[int], None]) -> tuple[Floats, Floats]:
    """Returns scores and labels of all rows, which are read in batches."""
    rows = len(dataset.source)
    scores, labels = np.empty(rows, np.float32), np.empty(rows, np.float32)
    for first in range(0, rows, BATCH_ROWS):
        numbers = np.arange(first, min(first + BATCH_ROWS, rows))
        batch = dataset.read_batch(numbers)
        assert batch is not None  # no row is filtered out
        scores[numbers] = trained.score(batch.features)
        labels[numbers] = batch.labels["label"].numpy()
        progress(int(numbers[-1]) + 1)
    return scores, labels


def _score_batches(trained: TrainedModel, dataset: Dataset, raw: Any, numbers: Any) -> Floats:
    """Scores raw rows that were read before; `numbers` are their numbers, for messages."""
    parts = []
    for first in range(0, raw.num_rows, BATCH_ROWS):
        batch = dataset.make_batch(raw.slice(first, BATCH_ROWS), numbers[first : first + BATCH_ROWS])
        assert batch is not None
        parts.append(trained.score(batch.features))
    return np.concatenate(parts)


def main() -> int:
    """Returns 0, or 1 after printing the error as the last line of the output."""

    def print_progress(activity: str, done: float) -> None:
        print(json.dumps({"activity": activity, "done": done}), flush=True)

    try:
        print_progress("loading the model", 0.0)
        request = MeasurementRequest.model_validate_json(sys.stdin.read())
        measurement = measure_model(request, print_progress)
        atomic.write_file(request.target, measurement.model_dump_json(indent=1) + "\n")
    except ElasticDLError as exc:
        print(json.dumps({"error": str(exc)}), flush=True)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
