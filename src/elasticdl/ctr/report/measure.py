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
from elasticdl.features.preprocessing import preprocessor as fronts
from elasticdl.model.evaluation import inference_mode
from elasticdl.worker.embeddings.tables import restore_rows


class TrainedModel:
    """Scores by the export's program where there is one, else by the zoo's model with its weights."""

    def __init__(
        self, directory: Path, files_directory: Path, step: int, module: nn.Module, *, has_program: bool
    ) -> None:
        self.place, self.files, self.step = directory, files_directory, step
        self.job = CtrJob(files_directory)
        self.has_program = has_program
        self._module = module

    @classmethod
    def load(cls, directory: Path, params: dict[str, Any]) -> TrainedModel:
        """An export, a checkpoint, or the newest one in a directory; `params` beside those of its job.json."""
        image, place = find_weights(directory)
        files = _find_files_directory(place)
        has_program = (place / PROGRAM_FILE).exists()
        if has_program:
            module: nn.Module = torch.export.load(place / PROGRAM_FILE).module()
        else:
            module = CtrJob(files).forward(**params)
            images.restore_state(restore_rows(module, image, place), module, None)
        return cls(place, files, image.step, module, has_program=has_program)

    def score(self, features: Any) -> Floats:
        """Logits. ModelError where one is no finite number."""
        if self.has_program:  # it is as it was exported: for evaluation, and refuses to be asked for another mode
            with torch.no_grad():
                predictions = self._module(features)
        else:
            with inference_mode(self._module):
                predictions = self._module(features)
        if not isinstance(predictions, dict) or "score" not in predictions:
            raise ModelError(f"{self.place}: expected predictions with a 'score', as models of the zoo give")
        scores: Floats = predictions["score"].reshape(-1).float().numpy()
        if not np.isfinite(scores).all():
            raise ModelError(f"{self.place}: the model gives scores that are no finite numbers")
        return scores

    @property
    def parameter_count(self) -> int:
        """Numbers that were learnt; rows of tables in files, too."""
        state = [one for one in self._module.state_dict().values() if one.is_floating_point()]
        return sum(int(one.numel()) for one in state) + _count_stored_parameters(self.place)


def _find_files_directory(place: Path) -> Path:
    """Where preprocessor.json lies: a checkpoint keeps what belongs to its model in a directory of its own."""
    for found in (place, place / "files"):
        if (found / fronts.PREPROCESSOR_FILE).exists():
            return found
    raise SpecError(
        f"{place}: no {fronts.PREPROCESSOR_FILE} beside the model: expected one that was trained from a ctr.yaml"
    )


def _count_stored_parameters(place: Path) -> int:
    """Numbers in tables that lie in files beside the model."""
    from elasticdl.ps.snapshots import exported_tables  # needs the native core

    if not (place / exported_tables.INDEX_FILE).exists():
        return 0
    return sum(one.rows * one.spec.columns for one in exported_tables.ExportedTables(place).tables.values())


BATCH_ROWS = 8192

ReportProgress = Callable[[str, float], None]


def measure_model(request: MeasurementRequest, say: ReportProgress) -> ModelMeasurement:
    """`say` hears what is being done, and which part of all rows to score is done."""
    trained = TrainedModel.load(request.model, request.params)
    asked = {"validation": request.validation, "test": request.test}
    datasets = {name: _open_dataset(trained, request, uri) for name, uri in asked.items() if uri is not None}
    if not datasets:
        raise SpecError("no rows are left to judge the model on; give ctr.yaml a split with test rows, or `test`")
    judged = list(datasets)[-1]
    columns = list(trained.job.preprocessor.columns)
    chosen = sample_rows(len(datasets[judged].source), request.rows, request.seed)
    counts = {name: len(dataset.source) for name, dataset in datasets.items()}
    total = sum(counts.values()) + len(chosen) * len(columns) * request.repeats
    before = 0
    scored: dict[str, tuple[Floats, Floats]] = {}
    for name, dataset in datasets.items():
        scored[name] = _score_all(trained, dataset, _progress_of_rows(say, f"scoring {name} rows", before, 1, total))
        before += counts[name]
    scores, labels = scored[judged]
    heard = _progress_of_rows(say, "permuting columns", before, len(chosen), total)
    found = permutation_importances(
        lambda rows: _score_batches(trained, datasets[judged], rows, chosen),
        datasets[judged].read(chosen),
        labels[chosen], columns, request.repeats, request.seed, heard,
    )  # fmt: skip
    return ModelMeasurement(
        model=str(trained.place),
        files=str(trained.files),
        step=trained.step,
        has_program=trained.has_program,
        parameters=trained.parameter_count,
        validation=compute_metrics(*scored["validation"]) if "validation" in scored else None,
        test=compute_metrics(*scored["test"]) if "test" in scored else None,
        judged="test" if judged == "test" else "validation",
        roc=roc_curve(scores, labels),
        reliability=calibration_bins(scores, labels),
        histogram=probability_histogram(scores, labels),
        importance=found,
        importance_rows=len(chosen),
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


def _progress_of_rows(say: ReportProgress, what: str, before: int, rows_each: int, total: int) -> Callable[[int], None]:
    return lambda done: say(what, (before + rows_each * done) / total)


def _score_all(trained: TrainedModel, dataset: Dataset, heard: Callable[[int], None]) -> tuple[Floats, Floats]:
    """Scores and labels of all rows, read in batches."""
    rows = len(dataset.source)
    scores, labels = np.empty(rows, np.float32), np.empty(rows, np.float32)
    for first in range(0, rows, BATCH_ROWS):
        numbers = np.arange(first, min(first + BATCH_ROWS, rows))
        batch = dataset.read_batch(numbers)
        assert batch is not None  # no row is filtered out
        scores[numbers] = trained.score(batch.features)
        labels[numbers] = batch.labels["label"].numpy()
        heard(int(numbers[-1]) + 1)
    return scores, labels


def _score_batches(trained: TrainedModel, dataset: Dataset, raw: Any, numbers: Any) -> Floats:
    """Of raw rows that are read already; `numbers` are theirs, for messages."""
    parts = []
    for first in range(0, raw.num_rows, BATCH_ROWS):
        batch = dataset.make_batch(raw.slice(first, BATCH_ROWS), numbers[first : first + BATCH_ROWS])
        assert batch is not None
        parts.append(trained.score(batch.features))
    return np.concatenate(parts)


def main() -> int:
    """Ends with 0, or with 1 and the error as the last line of the output."""

    def say(what: str, done: float) -> None:
        print(json.dumps({"what": what, "done": done}), flush=True)

    try:
        say("loading the model", 0.0)
        request = MeasurementRequest.model_validate_json(sys.stdin.read())
        found = measure_model(request, say)
        atomic.write_file(request.target, found.model_dump_json(indent=1) + "\n")
    except ElasticDLError as exc:
        print(json.dumps({"error": str(exc)}), flush=True)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
