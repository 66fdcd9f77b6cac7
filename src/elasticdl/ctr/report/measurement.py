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
    """Which model on which rows. At least one of `validation` and `test` is given."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Path  # an export, a checkpoint, or a directory of checkpoints
    params: dict[str, Any] = {}  # of the model, beside those of its job.json
    data: DataSpec = DataSpec()
    validation: str | None = None
    test: str | None = None
    index: Path
    rows: int  # at most so many are permuted
    repeats: int
    seed: int
    target: Path  # where the found document goes


class ModelMeasurement(BaseModel):
    """Curves and importances are of the `judged` rows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    model: str  # the directory it lay in
    files: str  # that of its preprocessor.json, features.yaml and statistics.json
    step: int
    has_program: bool  # scored by the export's program; else by its weights
    parameters: int
    validation: ClickMetrics | None
    test: ClickMetrics | None
    judged: Literal["test", "validation"]
    roc: tuple[tuple[float, float], ...]
    reliability: tuple[CalibrationBin, ...]
    histogram: ProbabilityHistogram
    importance: tuple[Importance, ...]
    importance_rows: int
    importance_repeats: int
    seed: int
    versions: dict[str, str]

    @property
    def metrics(self) -> ClickMetrics:
        found = self.test if self.judged == "test" else self.validation
        assert found is not None
        return found

    @classmethod
    def load(cls, path: Path) -> ModelMeasurement:
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, ValidationError) as exc:
            raise DataError(f"{path}: expected what was measured of a model: {str(exc).splitlines()[0]}") from exc
