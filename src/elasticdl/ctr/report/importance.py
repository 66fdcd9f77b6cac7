"""Permutation importance: how much worse a model gets when the values of a column are shuffled. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from elasticdl.ctr.report.metrics import Floats, auc, logloss


class Importance(BaseModel):
    """Means over the repeats, and standard deviations if there are several.

    There is no AUC if all labels are the same.
    """

    model_config = ConfigDict(frozen=True)

    column: str
    logloss_rise: float
    logloss_deviation: float | None
    auc_drop: float | None
    auc_deviation: float | None


def sample_rows(rows: int, max_rows: int, seed: int) -> NDArray[np.int64]:
    """Returns the sorted numbers of at most `max_rows` rows out of `rows`; the seed decides which."""
    if rows <= max_rows:
        return np.arange(rows)
    return np.sort(np.random.default_rng(seed).choice(rows, max_rows, replace=False))


def permutation_importances(
    score: Callable[[Any], Floats],
    rows: Any,
    labels: Floats,
    columns: Sequence[str],
    repeats: int,
    seed: int,
    progress: Callable[[int], None] = lambda done: None,
) -> tuple[Importance, ...]:
    """Returns the importance of each column, the most important first.

    `score` computes the scores of a pyarrow.RecordBatch such as `rows`. A column's permutations depend only on the seed
    and the index of the column. `progress` is called with the number of permutations scored so far.
    """
    before = score(rows)
    base_logloss, base_auc = logloss(before, labels), auc(before, labels)
    importances, done = [], 0
    for index, name in enumerate(columns):
        rises, drops = [], []
        for repeat in range(repeats):
            random = np.random.default_rng([seed, index, repeat])
            scores = score(permute_column(rows, name, random.permutation(rows.num_rows)))
            rises.append(logloss(scores, labels) - base_logloss)
            permuted_auc = auc(scores, labels)
            if base_auc is not None and permuted_auc is not None:
                drops.append(base_auc - permuted_auc)
            done += 1
            progress(done)
        importances.append(_summarize(name, rises, drops))
    return rank_importances(importances)


def permute_column(rows: Any, name: str, order: NDArray[np.int64]) -> Any:
    """Returns the batch with the values of one column in another order."""
    index = rows.schema.get_field_index(name)
    return rows.set_column(index, rows.schema.field(index), rows.column(index).take(pa.array(order)))


def rank_importances(importances: Sequence[Importance]) -> tuple[Importance, ...]:
    """Sorts by the rise in logloss; equal columns keep their order."""
    return tuple(sorted(importances, key=lambda importance: -importance.logloss_rise))


def _summarize(name: str, rises: Sequence[float], drops: Sequence[float]) -> Importance:
    return Importance(
        column=name,
        logloss_rise=float(np.mean(rises)),
        logloss_deviation=_deviation(rises),
        auc_drop=float(np.mean(drops)) if drops else None,
        auc_deviation=_deviation(drops),
    )


def _deviation(values: Sequence[float]) -> float | None:
    return float(np.std(values, ddof=1)) if len(values) > 1 else None
