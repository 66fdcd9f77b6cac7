"""The functions of a model file that come from the job's settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elasticdl.ctr.models import job
from elasticdl.ctr.models.job import CtrJob
from elasticdl.features.preprocessing.preprocessor import Preprocessor
from elasticdl.model.callbacks import EarlyStopping, ReduceLROnPlateau


@pytest.mark.parametrize(("patience", "expected"), [(3, [EarlyStopping, ReduceLROnPlateau]), (0, [])])
def test_without_patience_training_neither_ends_early_nor_slows_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: int, expected: list[type]
) -> None:
    monkeypatch.setattr(Preprocessor, "load", lambda directory: None)
    (tmp_path / job.SETTINGS_FILE).write_text(json.dumps({"model": "lr", "patience": patience}))

    assert [type(callback) for callback in CtrJob(tmp_path).callbacks()] == expected
