"""Trains a model of the zoo as a user does: by a ctr.yaml with data, label and model.

Jobs are real ones, of a master, workers and ps. Labels behind the validation part are not in the file they get.
"""

from __future__ import annotations

import lzma
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import elasticdl
from ctr.ours import Floats
from ctr.rows import COLUMNS, Raw
from elasticdl.jobs import home

CONFIG = """\
data: clicks.tsv
label: label
model: {model}
report: false  # made after training, and of no use here
"""
# What is said beside the config. Nothing: two workers and one ps in hybrid mode.
OPTIONS: dict[str, dict[str, Any]] = {
    "config": {},
    "hybrid": {"ps_mode": "hybrid", "num_ps_pods": 2},
    "async": {"ps_mode": "async", "num_ps_pods": 2},
}


@dataclass(frozen=True, slots=True)
class Jobs:
    """`place` has the data and what is made of it: statistics are computed once for each model."""

    place: Path
    raw: Raw
    timeout_s: float = 1800.0

    @classmethod
    def of(cls, raw: Raw, data: Path, place: Path) -> Jobs:
        place.mkdir(parents=True, exist_ok=True)
        with lzma.open(data, "rt") as lines, (place / "clicks.tsv").open("w") as file:
            file.write("\t".join(COLUMNS) + "\n")
            for row, line in zip(range(len(raw.labels)), lines, strict=False):
                file.write(line if row < raw.known else "0" + line[line.index("\t") :])
        return cls(place, raw)

    def train(self, mode: str, model: str, seed: int) -> Floats:
        """The probabilities of a click in the rows behind the training part."""
        config, name = self.place / f"{model}.yaml", f"{mode}-{model}-{seed}".replace("_", "-")
        config.write_text(CONFIG.format(model=model))
        with home.use_home(self.place / "home"):
            job = elasticdl.submit(config, job_name=name, seed=seed, output=self.place / name, **OPTIONS[mode])
            status = job.wait(self.timeout_s).raise_for_failure()
            if status.records_per_epoch != self.raw.train:
                raise RuntimeError(f"{name}: expected {self.raw.train:,} rows. Received: {status.records_per_epoch}")
            rows = f"{self.place / 'clicks.tsv'}#rows={self.raw.train}:{len(self.raw.labels)}"
            output = self.place / f"{name}-predicted"
            prediction = elasticdl.submit(
                config, kind="prediction", job_name=f"{name}-predict", checkpoint_dir_for_init=self.place / name,
                prediction_data=rows, output=output,
            )  # fmt: skip
            prediction.wait(self.timeout_s).raise_for_failure()
        return predicted(output)


def predicted(directory: Path) -> Floats:
    """In the order of the records."""
    parts = [pq.read_table(part, columns=["record", "probability"]) for part in sorted(directory.glob("*.parquet"))]
    records = np.concatenate([part["record"].to_numpy() for part in parts])
    chances = np.concatenate([part["probability"].to_numpy() for part in parts])
    found: Floats = chances[np.argsort(records)].astype(np.float64)
    return found
