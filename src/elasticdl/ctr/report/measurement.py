"""The request to the measuring process and its result: the two documents between it and the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from elasticdl.ctr.report.importance import Importance
from elasticdl.ctr.report.metrics import CalibrationBin, ClickMetrics, ProbabilityHistogram
from elasticdl.errors import DataError
from elasticdl.spec import DataSpec

MEASUREMENT_FILE = "measurement.json"


class MeasurementRequest(BaseModel):
    """The model to measure and the rows to use. At least one of `validation` and `test` is given."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Path  # an export, a checkpoint, or a directory of checkpoints
    params: dict[str, Any] = {}  # of the model, in addition to those in its job.json
    data: DataSpec = DataSpec()
    validation: str | None = None
    test: str | None = None
    index: Path
    rows: int  # at most this many rows are permuted
    repeats: int
    seed: int
    target: Path  # where the ModelMeasurement is written


class ModelMeasurement(BaseModel):
    """The result. Curves and importances are computed on the `evaluated_on` rows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    model: str  # its directory
    files: str  # the directory of its preprocessor.json, features.yaml and statistics.json
    step: int
    uses_exported_program: bool  # else scored by its weights
    parameters: int
    validation: ClickMetrics | None
    test: ClickMetrics | None
    evaluated_on: Literal["test", "validation"]
    roc: tuple[tuple[float, float], ...]
    calibration: tuple[CalibrationBin, ...]
    histogram: ProbabilityHistogram
    importance: tuple[Importance, ...]
    importance_rows: int
    importance_repeats: int
    seed: int
    versions: dict[str, str]

    @property
    def metrics(self) -> ClickMetrics:
        metrics = self.test if self.evaluated_on == "test" else self.validation
        assert metrics is not None
        return metrics

    @classmethod
    def load(cls, path: Path) -> ModelMeasurement:
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, ValidationError) as exc:
            raise DataError(f"{path}: expected the measurement of a model: {str(exc).splitlines()[0]}") from exc
