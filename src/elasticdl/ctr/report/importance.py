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
    """Means over the repeats, and their standard deviations, which a single one has not.

    There is no AUC where all labels are the same.
    """

    model_config = ConfigDict(frozen=True)

    column: str
    logloss_rise: float
    logloss_spread: float | None
    auc_drop: float | None
    auc_spread: float | None


def sample_rows(rows: int, most: int, seed: int) -> NDArray[np.int64]:
    """Numbers of at most `most` of so many rows, in their order; the same for the same seed."""
    if rows <= most:
        return np.arange(rows)
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))


def permutation_importances(
    score: Callable[[Any], Floats],
    rows: Any,
    labels: Floats,
    columns: Sequence[str],
    repeats: int,
    seed: int,
    heard: Callable[[int], None] = lambda done: None,
) -> tuple[Importance, ...]:
    """Of each column, the most important first. `score` gives those of a pyarrow.RecordBatch such as `rows`.

    A column's permutations depend on the seed and its place alone. `heard` is told how many were scored.
    """
    before = score(rows)
    least, best = logloss(before, labels), auc(before, labels)
    found, done = [], 0
    for place, name in enumerate(columns):
        rises, drops = [], []
        for repeat in range(repeats):
            random = np.random.default_rng([seed, place, repeat])
            scores = score(permute_column(rows, name, random.permutation(rows.num_rows)))
            rises.append(logloss(scores, labels) - least)
            after = auc(scores, labels)
            if best is not None and after is not None:
                drops.append(best - after)
            done += 1
            heard(done)
        found.append(_summarize(name, rises, drops))
    return rank_importances(found)


def permute_column(rows: Any, name: str, order: NDArray[np.int64]) -> Any:
    """The batch with the values of one column in another order."""
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, rows.schema.field(place), rows.column(place).take(pa.array(order)))


def rank_importances(found: Sequence[Importance]) -> tuple[Importance, ...]:
    """By the rise in logloss; columns that are equal, as they came."""
    return tuple(sorted(found, key=lambda one: -one.logloss_rise))


def _summarize(name: str, rises: Sequence[float], drops: Sequence[float]) -> Importance:
    return Importance(
        column=name,
        logloss_rise=float(np.mean(rises)),
        logloss_spread=_spread(rises),
        auc_drop=float(np.mean(drops)) if drops else None,
        auc_spread=_spread(drops),
    )


def _spread(values: Sequence[float]) -> float | None:
    return float(np.std(values, ddof=1)) if len(values) > 1 else None
