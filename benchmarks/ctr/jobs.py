"""Train a model of the zoo as a person does: a ctr.yaml with data, label and model, `elasticdl train`, `predict`.

Jobs are real ones, of a master, workers and ps. Labels behind the validation part are not in the file they get.
"""

from __future__ import annotations

import lzma
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from ctr.ours import Floats
from ctr.rows import COLUMNS, Raw

CONFIG = """\
data: clicks.tsv
label: label
model: {model}
report: false  # made after training, and of no use here
"""
# What is said beside the config. Nothing: two workers and one ps in hybrid mode.
OPTIONS = {
    "config": (),
    "hybrid": ("--ps_mode=hybrid", "--num_ps_pods=2"),
    "async": ("--ps_mode=async", "--num_ps_pods=2"),
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

    def train(self, manner: str, model: str, seed: int) -> Floats:
        """The chances of a click in the rows behind the training part."""
        config, name = self.place / f"{model}.yaml", f"{manner}-{model}-{seed}".replace("_", "-")
        config.write_text(CONFIG.format(model=model))
        said = self._run("train", config.name, f"--job_name={name}", f"--seed={seed}", f"--output={name}",
                         *OPTIONS[manner])  # fmt: skip
        if f"{self.raw.train:,} rows to train on" not in said:
            raise RuntimeError(f"{name}: expected {self.raw.train:,} rows to train on. Received:\n{said[-2000:]}")
        rows = f"clicks.tsv#rows={self.raw.train}:{len(self.raw.labels)}"
        self._run("predict", config.name, f"--job_name={name}-predict", f"--checkpoint_dir_for_init={name}",
                  f"--prediction_data={rows}", f"--output={name}-predicted")  # fmt: skip
        return predicted(self.place / f"{name}-predicted")

    def _run(self, *words: str) -> str:
        environ = os.environ | {"ELASTICDL_HOME": str(self.place / "home"), "COLUMNS": "150"}
        done = subprocess.run(
            [sys.executable, "-m", "elasticdl.cli", *words],
            cwd=self.place, env=environ, capture_output=True, text=True, timeout=self.timeout_s, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"elasticdl {' '.join(words)}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        return done.stdout


def predicted(directory: Path) -> Floats:
    """In the order of the records."""
    parts = [pq.read_table(part, columns=["record", "probability"]) for part in sorted(directory.glob("*.parquet"))]
    records = np.concatenate([part["record"].to_numpy() for part in parts])
    chances = np.concatenate([part["probability"].to_numpy() for part in parts])
    found: Floats = chances[np.argsort(records)].astype(np.float64)
    return found
