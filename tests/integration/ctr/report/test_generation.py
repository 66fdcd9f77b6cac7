"""The process that measures a model for its report."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.ctr.report import generation
from elasticdl.ctr.report.measurement import MeasurementRequest
from elasticdl.errors import ElasticDLError


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ('import sys; sys.stdin.read(); print(\'{"error": "no such column"}\'); sys.exit(1)', "no such column"),
        ("raise MemoryError('all is used')", "the measuring process failed: MemoryError: all is used"),
        ("import os; os._exit(9)", "the measuring process failed: exit status 9"),
    ],
)
def test_the_reason_of_a_failed_measurement_is_reported(
    program: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = MeasurementRequest(
        model=tmp_path, index=tmp_path, rows=1, repeats=1, seed=0, target=tmp_path / "measurement.json"
    )
    monkeypatch.setattr(generation, "MEASURE_ARGUMENTS", ("-c", program))

    with pytest.raises(ElasticDLError) as raised:
        generation.measure_in_process(request, lambda activity, done: None)

    assert str(raised.value) == message
