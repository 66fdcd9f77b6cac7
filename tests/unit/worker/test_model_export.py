"""The checkpoint that is exported: that of the best step, if this is requested and it exists."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from elasticdl.checkpoint import manifest
from elasticdl.model.callbacks import BestMetric, Callback, EarlyStopping
from elasticdl.worker.model_export import find_best_checkpoint


def watching(best_step: int | None, *, exports_best: bool = True) -> list[Callback]:
    callback = EarlyStopping("logloss", mode="min", exports_best=exports_best)
    callback.best_step = best_step
    return [Callback(), callback]


def test_the_checkpoint_of_the_best_step_is_chosen(tmp_path: Path) -> None:
    (tmp_path / manifest.checkpoint_name(40)).mkdir()

    assert find_best_checkpoint(watching(40), tmp_path, 60) == tmp_path / manifest.checkpoint_name(40)


@pytest.mark.parametrize("callbacks", [[], [BestMetric("auc")], watching(None), watching(60)])
def test_no_checkpoint_is_chosen_if_the_last_step_is_the_best(callbacks: list[Callback], tmp_path: Path) -> None:
    assert find_best_checkpoint(callbacks, tmp_path, 60) is None


def test_the_last_step_is_exported_unless_the_best_is_requested(tmp_path: Path) -> None:
    (tmp_path / manifest.checkpoint_name(40)).mkdir()

    assert find_best_checkpoint(watching(40, exports_best=False), tmp_path, 60) is None


def test_a_best_step_without_a_checkpoint_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert find_best_checkpoint(watching(40), tmp_path, 60) is None
    assert "logloss was best at step 40, of which there is no checkpoint" in caplog.text
