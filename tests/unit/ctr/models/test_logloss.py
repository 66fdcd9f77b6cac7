from __future__ import annotations

import math

import pytest
import torch

from elasticdl.ctr.models.job import weighted_logloss
from elasticdl.errors import ModelError

LABELS, SCORES, WEIGHTS = [1, 0, 1], [0.3, -0.2, 2.0], [2.0, 0.5, 0.0]


def of(label: int, score: float) -> float:
    chance = 1 / (1 + math.exp(-score))
    return -math.log(chance if label else 1 - chance)


def test_rows_count_by_their_weight() -> None:
    expected = sum(w * of(y, s) for y, s, w in zip(LABELS, SCORES, WEIGHTS, strict=True)) / 3

    loss = weighted_logloss({"label": torch.tensor(LABELS), "weight": torch.tensor(WEIGHTS)}, torch.tensor(SCORES))

    assert loss.item() == pytest.approx(expected)


def test_a_click_counts_as_many_times_as_asked() -> None:
    expected = sum((3.0 if y else 1.0) * of(y, s) for y, s in zip(LABELS, SCORES, strict=True)) / 3

    assert weighted_logloss(torch.tensor(LABELS), torch.tensor(SCORES), 3.0).item() == pytest.approx(expected)


def test_halves_of_a_batch_have_together_its_gradient() -> None:
    scores = torch.tensor([*SCORES, 0.1], requires_grad=True)
    labels = {"label": torch.tensor([*LABELS, 0]), "weight": torch.tensor([*WEIGHTS, 9.0])}
    (gradient,) = torch.autograd.grad(weighted_logloss(labels, scores), scores)

    halves = [
        weighted_logloss({k: v[part] for k, v in labels.items()}, scores[part]) / 2
        for part in (slice(0, 2), slice(2, 4))
    ]

    (together,) = torch.autograd.grad(halves[0] + halves[1], scores)
    torch.testing.assert_close(together, gradient)


@pytest.mark.parametrize(("labels", "weight"), [([1, 0], 1.0), ([1, 0, 1], 0.0)])
def test_what_does_not_fit_is_refused(labels: list[int], weight: float) -> None:
    with pytest.raises(ModelError, match="Received"):
        weighted_logloss(torch.tensor(labels), torch.tensor(SCORES), weight)
