"""The process that measures a model: `python -m elasticdl.ctr.report.measuring`, with a Request as JSON on its input.

It may import torch, and so the command line, which starts it, need not. Its output is a line of JSON for each step:
{"what": …, "done": 0.4}, or {"error": …} as the last. Of the rows only scores and labels are kept.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import elasticdl
from elasticdl import replacement
from elasticdl.ctr.report.importance import importances, sample
from elasticdl.ctr.report.measured import Measured, Request
from elasticdl.ctr.report.quality import Floats, histogram, quality, reliability, roc
from elasticdl.ctr.report.trained import Trained
from elasticdl.data.dataset import Dataset
from elasticdl.data.mode import Mode
from elasticdl.data.open import open_source
from elasticdl.errors import ElasticDLError, SpecError

BATCH = 8192

Say = Callable[[str, float], None]


def measure(request: Request, say: Say) -> Measured:
    """`say` hears what is being done, and which part of all rows to score is done."""
    trained = Trained.load(request.model, request.params)
    asked = {"validation": request.validation, "test": request.test}
    datasets = {name: _dataset(trained, request, uri) for name, uri in asked.items() if uri is not None}
    if not datasets:
        raise SpecError("no rows are left to judge the model on; give ctr.yaml a split with test rows, or `test`")
    judged = list(datasets)[-1]
    columns = list(trained.job.front.columns)
    chosen = sample(len(datasets[judged].source), request.rows, request.seed)
    counts = {name: len(dataset.source) for name, dataset in datasets.items()}
    total = sum(counts.values()) + len(chosen) * len(columns) * request.repeats
    before = 0
    scored: dict[str, tuple[Floats, Floats]] = {}
    for name, dataset in datasets.items():
        scored[name] = _score_all(trained, dataset, _heard(say, f"scoring {name} rows", before, 1, total))
        before += counts[name]
    scores, labels = scored[judged]
    heard = _heard(say, "permuting columns", before, len(chosen), total)
    found = importances(
        lambda rows: _score(trained, datasets[judged], rows, chosen),
        datasets[judged].read(chosen),
        labels[chosen], columns, request.repeats, request.seed, heard,
    )  # fmt: skip
    return Measured(
        model=str(trained.place),
        files=str(trained.files),
        step=trained.step,
        has_program=trained.has_program,
        parameters=trained.parameters,
        validation=quality(*scored["validation"]) if "validation" in scored else None,
        test=quality(*scored["test"]) if "test" in scored else None,
        judged="test" if judged == "test" else "validation",
        roc=roc(scores, labels),
        reliability=reliability(scores, labels),
        histogram=histogram(scores, labels),
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


def _dataset(trained: Trained, request: Request, uri: str) -> Dataset:
    source = open_source(uri, request.data, request.index)
    return trained.job.dataset(Dataset(source, Mode.EVALUATION), Mode.EVALUATION)


def _heard(say: Say, what: str, before: int, rows_each: int, total: int) -> Callable[[int], None]:
    return lambda done: say(what, (before + rows_each * done) / total)


def _score_all(trained: Trained, dataset: Dataset, heard: Callable[[int], None]) -> tuple[Floats, Floats]:
    """Scores and labels of all rows, read in batches."""
    rows = len(dataset.source)
    scores, labels = np.empty(rows, np.float32), np.empty(rows, np.float32)
    for first in range(0, rows, BATCH):
        numbers = np.arange(first, min(first + BATCH, rows))
        batch = dataset.batch(numbers)
        assert batch is not None  # no row is filtered out
        scores[numbers] = trained.score(batch.features)
        labels[numbers] = batch.labels["label"].numpy()
        heard(int(numbers[-1]) + 1)
    return scores, labels


def _score(trained: Trained, dataset: Dataset, raw: Any, numbers: Any) -> Floats:
    """Of raw rows that are read already; `numbers` are theirs, for messages."""
    parts = []
    for first in range(0, raw.num_rows, BATCH):
        batch = dataset.batch_of(raw.slice(first, BATCH), numbers[first : first + BATCH])
        assert batch is not None
        parts.append(trained.score(batch.features))
    return np.concatenate(parts)


def main() -> int:
    """Ends with 0, or with 1 and the error as the last line of the output."""

    def say(what: str, done: float) -> None:
        print(json.dumps({"what": what, "done": done}), flush=True)

    try:
        say("loading the model", 0.0)
        request = Request.model_validate_json(sys.stdin.read())
        found = measure(request, say)
        replacement.write(request.target, found.model_dump_json(indent=1) + "\n")
    except ElasticDLError as exc:
        print(json.dumps({"error": str(exc)}), flush=True)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
