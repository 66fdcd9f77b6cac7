"""Creates the project of `elasticdl zoo init DIRECTORY`: a model file, a little data, and a job that trains at once.

Imports no torch.
"""

from __future__ import annotations

import math
import random
from importlib import resources
from pathlib import Path

from elasticdl.checkpoint import export_target, staging
from elasticdl.errors import SpecError

TEMPLATE_FILES = ("starter.py", "job.yaml", "README.md")
TRAINING_RECORDS, TEST_RECORDS = 2000, 500


def create_project(directory: Path) -> str:
    """Writes the starter into `directory`, which must be new or empty. Returns a message with the next step.

    Raises SpecError if the directory is not empty or cannot be written.
    """
    if directory.exists() and not (directory.is_dir() and not any(directory.iterdir())):
        raise SpecError(f"{directory} exists already and is not empty; name a new directory")
    export_target.check_writable(directory.absolute().parent)
    template = resources.files("elasticdl.zoo") / "template"
    with staging.staged_directory(directory.absolute()) as staged:
        for name in TEMPLATE_FILES:
            (staged / name).write_text((template / name).read_text(encoding="utf-8"), encoding="utf-8")
        (staged / "data").mkdir()
        (staged / "data" / "train.csv").write_text(make_spirals(TRAINING_RECORDS, seed=1), encoding="utf-8")
        (staged / "data" / "test.csv").write_text(make_spirals(TEST_RECORDS, seed=2), encoding="utf-8")
    return f"{directory} holds a model, its data and a job. Train it:\n\n    elasticdl train {directory / 'job.yaml'}"


def make_spirals(records: int, seed: int) -> str:
    """Returns points on two spirals as CSV with the columns x, y and label."""
    numbers = random.Random(seed)
    lines = ["x,y,label"]
    for record in range(records):
        label = record % 2
        radius = math.sqrt(numbers.random())
        angle = 2 * math.pi * radius + math.pi * label
        x = radius * math.cos(angle) + numbers.gauss(0, 0.03)
        y = radius * math.sin(angle) + numbers.gauss(0, 0.03)
        lines.append(f"{x:.4f},{y:.4f},{label}")
    return "\n".join(lines) + "\n"
