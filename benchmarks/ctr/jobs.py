"""Trains a model of the zoo as a user does: with a ctr.yaml of data, label and model.

The jobs are real, with a master, workers and ps. Their file has no labels after the validation part.
"""

from __future__ import annotations

import lzma
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import elasticdl
from ctr.local_training import Floats
from ctr.rows import COLUMNS, CriteoRows
from elasticdl.jobs import home

CONFIG = """\
data: clicks.tsv
label: label
model: {model}
report: false  # it is written after training, and not needed here
"""
# Options beside the config. Without any, a job has two workers and one ps in hybrid mode.
OPTIONS: dict[str, dict[str, Any]] = {
    "config": {},
    "hybrid": {"ps_mode": "hybrid", "num_ps_pods": 2},
    "async": {"ps_mode": "async", "num_ps_pods": 2},
}


@dataclass(frozen=True, slots=True)
class CtrJobs:
    """Jobs that share a directory with the data and its statistics, which are computed once for each model."""

    directory: Path
    rows: CriteoRows
    timeout_s: float = 1800.0

    @classmethod
    def prepare(cls, rows: CriteoRows, data: Path, directory: Path) -> CtrJobs:
        directory.mkdir(parents=True, exist_ok=True)
        with lzma.open(data, "rt") as lines, (directory / "clicks.tsv").open("w") as file:
            file.write("\t".join(COLUMNS) + "\n")
            for row, line in zip(range(len(rows.labels)), lines, strict=False):
                file.write(line if row < rows.labeled else "0" + line[line.index("\t") :])
        return cls(directory, rows)

    def train(self, mode: str, model: str, seed: int) -> Floats:
        """Returns the probabilities of a click for the rows after the training part."""
        config, job_name = self.directory / f"{model}.yaml", f"{mode}-{model}-{seed}".replace("_", "-")
        config.write_text(CONFIG.format(model=model))
        with home.use_home(self.directory / "home"):
            job = elasticdl.submit(
                config, job_name=job_name, seed=seed, output=self.directory / job_name, **OPTIONS[mode]
            )
            status = job.wait(self.timeout_s).raise_for_failure()
            if status.records_per_epoch != self.rows.train:
                raise RuntimeError(
                    f"{job_name}: expected {self.rows.train:,} rows. Received: {status.records_per_epoch}"
                )
            row_range = f"{self.directory / 'clicks.tsv'}#rows={self.rows.train}:{len(self.rows.labels)}"
            output = self.directory / f"{job_name}-predicted"
            prediction = elasticdl.submit(
                config,
                kind="prediction",
                job_name=f"{job_name}-predict",
                checkpoint_dir_for_init=self.directory / job_name,
                prediction_data=row_range,
                output=output,
            )
            prediction.wait(self.timeout_s).raise_for_failure()
        return read_predictions(output)


def read_predictions(directory: Path) -> Floats:
    """Reads predictions in the order of the records."""
    parts = [pq.read_table(part, columns=["record", "probability"]) for part in sorted(directory.glob("*.parquet"))]
    records = np.concatenate([part["record"].to_numpy() for part in parts])
    probabilities = np.concatenate([part["probability"].to_numpy() for part in parts])
    predictions: Floats = probabilities[np.argsort(records)].astype(np.float64)
    return predictions
