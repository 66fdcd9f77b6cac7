"""Trees of members that are all in this process: the same bytes for every number of members and every history."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.boosting.communicator import TreeCommunicator
from elasticdl.boosting.cut_points import CutPoints
from elasticdl.boosting.forest import merge_boosters
from elasticdl.boosting.gradients import FindLargest, Floats, LabelledPart
from elasticdl.boosting.grower import TreeGrower, TreePart
from elasticdl.boosting.parameters import parse_parameters
from elasticdl.collective.group import Group
from tests.properties import examples
from tests.unit.collective.members import HERE, build_groups

ROWS, COLUMNS, ROUNDS = 600, 5, 6
BASE_SCORE = 0.5

PARAMS: dict[str, dict[str, Any]] = {
    "binary": {"objective": "binary:logistic", "scale_pos_weight": 2.0},
    "squared": {"objective": "reg:squarederror", "max_depth": 0, "max_leaves": 7, "grow_policy": "lossguide"},
    "poisson": {"objective": "count:poisson", "gamma": 0.1, "alpha": 0.2, "lambda": 2.0},
    "tweedie": {"objective": "reg:tweedie", "monotone_constraints": [1, 0, 0, 0, 0]},
    "classes": {"objective": "multi:softprob", "num_class": 3},
    "sampled": {"objective": "binary:logistic", "subsample": 0.6, "colsample_bytree": 0.8, "colsample_bynode": 0.7},
    "parallel": {"objective": "reg:squarederror", "num_parallel_tree": 2, "eta": 0.5},
}


def make_rows() -> Floats:
    draw = np.random.default_rng(3)
    rows = draw.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    rows[draw.random(rows.shape) < 0.1] = np.nan
    return rows


def make_labels(kind: str) -> Floats:
    signal = np.nan_to_num(make_rows()[:, 0]) + np.random.default_rng(4).normal(size=ROWS)
    if kind == "classes":
        return np.digitize(signal, [-0.5, 0.5]).astype(np.float32)
    if kind in ("poisson", "tweedie"):
        return np.maximum(0, np.round(signal * 2)).astype(np.float32)
    return (signal > 0).astype(np.float32)


def ask(group: Group) -> FindLargest:
    def find_largest(own: tuple[float, float]) -> tuple[float, float]:
        numbers = torch.empty(2 * group.size, dtype=torch.float64)
        group.allgather(numbers, torch.tensor(own, dtype=torch.float64))
        gradients, hessians = numbers.view(-1, 2).amax(dim=0).tolist()
        return gradients, hessians

    return find_largest


def even(size: int) -> list[int]:
    """The borders of parts that are equally large."""
    return [ROWS * rank // size for rank in range(size + 1)]


def train(kind: str, history: Sequence[tuple[int, Sequence[int]]], threads: int = 1) -> str:
    """Train with a history of (rounds, borders of the members' parts), and digest the model."""
    parameters = parse_parameters(PARAMS[kind] | {"max_bin": 32, "seed": 5} | {"max_depth": 4} | PARAMS[kind])
    rows, labels = make_rows(), make_labels(kind)
    weights = np.random.default_rng(6).uniform(0.5, 1.5, ROWS).astype(np.float32)
    cuts = CutPoints.sketch(rows, parameters.max_bin, threads=1)
    bins = cuts.encode(rows)
    classes = parameters.num_class or 1
    margins = np.full((ROWS, classes) if classes > 1 else ROWS, 0.0, np.float32)
    boosters: list[xgboost.Booster] = []
    first = 0
    for rounds, borders in history:
        groups = build_groups(len(borders) - 1)

        def work(group: Group, first: int = first, rounds: int = rounds, borders: Sequence[int] = borders,
                 margins: Floats = margins) -> TreeGrower:  # fmt: skip
            begin, end = borders[group.rank], borders[group.rank + 1]
            part = TreePart(
                LabelledPart(begin, labels[begin:end], weights[begin:end]), bins[begin:end], margins[begin:end]
            )
            communicator = TreeCommunicator(group, f"worker-{group.rank}", [HERE] * group.size).open()
            grower = TreeGrower(part, cuts, parameters, BASE_SCORE, ask(group), threads)
            for round_ in range(first, first + rounds):
                grower.grow(round_)
            communicator.close()
            return grower

        with ThreadPoolExecutor(len(groups)) as pool:
            growers = list(pool.map(work, groups))
        for group in groups:
            group.close()
        digests = {hashlib.sha256(merge_boosters(grower.boosters).save_raw("json")).digest() for grower in growers}
        assert len(digests) == 1, "all members have the same trees"
        boosters += growers[0].boosters
        margins = np.concatenate([grower.margins for grower in growers])
        first += rounds
    model = merge_boosters(boosters)
    assert model.num_boosted_rounds() == ROUNDS
    return hashlib.sha256(model.save_raw("json")).hexdigest()


@pytest.fixture(scope="module")
def alone() -> dict[str, str]:
    return {kind: train(kind, [(ROUNDS, even(1))]) for kind in PARAMS}


@pytest.mark.parametrize("kind", PARAMS)
@pytest.mark.parametrize("size", [2, 3])
def test_the_number_of_members_does_not_matter(kind: str, size: int, alone: dict[str, str]) -> None:
    assert train(kind, [(ROUNDS, even(size))]) == alone[kind]


@pytest.mark.parametrize("kind", PARAMS)
def test_members_and_threads_come_and_go_without_any_effect(kind: str, alone: dict[str, str]) -> None:
    assert train(kind, [(1, even(2)), (2, even(4)), (1, even(3)), (2, even(1))], threads=2) == alone[kind]


@pytest.mark.filterwarnings("ignore:.*Empty dataset at worker")
@pytest.mark.parametrize("borders", [[0, 0, ROWS], [0, 1, ROWS], [0, 17, 17, ROWS]], ids=["first", "one row", "middle"])
def test_a_part_may_have_no_rows(borders: Sequence[int], alone: dict[str, str]) -> None:
    assert train("binary", [(ROUNDS, borders)]) == alone["binary"]


def test_a_column_may_be_missing_in_a_whole_part(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = make_rows()
    rows[: ROWS // 2, 2] = np.nan
    monkeypatch.setattr("tests.unit.boosting.test_grower.make_rows", lambda: rows)

    assert train("squared", [(ROUNDS, even(2))]) == train("squared", [(ROUNDS, even(1))])


@given(st.sampled_from(sorted(PARAMS)), st.lists(st.integers(1, 3), min_size=ROUNDS, max_size=ROUNDS))
@settings(max_examples=examples(5))
def test_no_history_matters(kind: str, sizes: list[int]) -> None:
    assert train(kind, [(1, even(size)) for size in sizes]) == train(kind, [(ROUNDS, even(1))])


def test_the_trees_are_as_good_as_those_of_xgboost() -> None:
    rows, labels = make_rows(), make_labels("binary")
    parameters = parse_parameters({"objective": "binary:logistic", "max_bin": 32, "max_depth": 4})
    cuts = CutPoints.sketch(rows, 32, threads=1)
    part = TreePart(LabelledPart(0, labels), cuts.encode(rows), np.zeros(ROWS, np.float32))
    grower = TreeGrower(part, cuts, parameters, BASE_SCORE, lambda largest: largest)
    data = xgboost.QuantileDMatrix(rows, labels, max_bin=32)
    own = xgboost.train(parameters.to_xgboost(1, "cpu") | {"base_score": BASE_SCORE}, data, 20)
    for round_ in range(20):
        grower.grow(round_)

    def logloss(margins: Floats) -> float:
        return float(np.mean(np.logaddexp(0, -np.where(labels == 1, margins, -margins))))

    ours, theirs = logloss(grower.margins), logloss(own.predict(data, output_margin=True))
    assert abs(ours - theirs) < 0.0002
