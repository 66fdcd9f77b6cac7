"""A job from a config alone: trained with workers that come and go, evaluated, predicted, served without ElasticDL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml

from tests.integration.commands import elasticdl

COLUMNS = ("clicked", "price", "city", "tags", "at", "importance")


def clicks(path: Path, rows: int, seed: int) -> Path:
    """City and price matter, and their product; some values are missing, some of the last ones are new."""
    random = np.random.default_rng(seed)
    price, city = random.exponential(10.0, rows), random.integers(0, 30 + 5 * seed, rows)
    chance = 1 / (1 + np.exp(-(-1.5 + 0.1 * city + np.where(city % 2, -0.05, 0.05) * price)))
    lines = []
    for row, (p, c, y) in enumerate(zip(price, city, random.random(rows) < chance, strict=True)):
        cost = "" if random.random() < 0.1 else f"{p:.2f}"
        town = "" if random.random() < 0.05 else f"Städtchen {c}"
        tags = "|".join(f"t{tag}" for tag in random.integers(0, 9, random.integers(0, 4)))
        lines.append(f"{int(y)},{cost},{town},{tags},2026-11-{1 + row % 28:02} 0{row % 10}:30:00,{1 + row % 2}")
    path.write_text(",".join(COLUMNS) + "\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return path


CONFIG = """
data: clicks.csv
label: clicked
model: {deepfm: {embedding_dim: 4, hidden_units: [16]}}
weight: importance
features:
  importance: drop
  tags: sequence(sep="|", max_length=3, num_bins=50)
  at: date_parts(parts=[hour, weekday])
  crosses: [cross(city, at, num_bins=100)]
training: {epochs: 3, batch_size: 128, learning_rate: 0.01}
report: false
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("ctr")
    clicks(directory / "clicks.csv", 3000, seed=0)
    clicks(directory / "new.csv", 200, seed=1)
    (directory / "ctr.yaml").write_text(CONFIG)
    shown = elasticdl(directory, "train", "ctr.yaml", "--job_name=clicks")
    assert "2,400 rows to train on" in shown and "succeeded" in shown
    return directory


def test_a_ctr_job_learns_and_is_evaluated_on_unseen_rows(trained: Path) -> None:
    shown = elasticdl(trained, "evaluate", "ctr.yaml", "--job_name=judged")

    result = json.loads((trained / "home" / "jobs" / "judged" / "result.json").read_text())
    metrics = result["metrics"]
    assert "300" in shown and metrics["auc"] > 0.62 and metrics["logloss"] < 0.69
    assert 0.7 < metrics["calibration"] < 1.4


def test_serving_raw_rows_without_elasticdl_gives_the_predictions_of_elasticdl(trained: Path) -> None:
    """Rows that are new, with values that are new; to the last bit."""
    elasticdl(trained, "predict", "ctr.yaml", "--prediction_data=new.csv", "--output=predicted", "--job_name=said")
    parts = [pq.read_table(part) for part in sorted((trained / "predicted").glob("*.parquet"))]
    rows = sorted((row for part in parts for row in part.to_pylist()), key=lambda row: row["record"])
    code = """
import csv, sys, torch
from preprocessor import Preprocessor
assert not any(name.startswith("elasticdl") for name in sys.modules)
with open(sys.argv[1], encoding="utf-8", newline="") as file:
    rows = list(csv.DictReader(file))
features = {name: torch.from_numpy(array) for name, array in Preprocessor("preprocessor.json").encode(rows).items()}
with torch.no_grad():
    found = torch.export.load("model.pt2").module()(features)
torch.save(found, sys.argv[2])
"""
    export = trained / "ctr-ctr" / "model"
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    words = [sys.executable, "-W", "ignore", "-c", code, str(trained / "new.csv"), str(trained / "alone.pt")]
    subprocess.run(words, cwd=export, env=environ, check=True, timeout=120)
    alone = torch.load(trained / "alone.pt", weights_only=True)

    assert len(rows) == 200
    assert [row["score"] for row in rows] == alone["score"].tolist()
    assert [row["probability"] for row in rows] == alone["probability"].tolist()


def test_with_asynchronous_workers_the_best_model_is_exported_when_it_stops_improving(trained: Path) -> None:
    text = CONFIG.replace("epochs: 3", "epochs: 40, patience: 1")
    (trained / "apart.yaml").write_text(text)
    shown = elasticdl(trained, "train", "apart.yaml", "--job_name=apart", "--ps_mode=async")

    job = trained / "home" / "jobs" / "apart"
    result = json.loads((job / "result.json").read_text())
    events = [json.loads(line) for line in (job / "events.jsonl").read_text().splitlines()]
    evaluated = {event["step"]: event["reason"] for event in events if event["kind"] == "evaluation"}
    best = min(evaluated, key=lambda step: float(evaluated[step].partition("logloss ")[2].partition(",")[0]))
    export = json.loads((trained / "apart-ctr" / "model" / "model.json").read_text())
    assert result["phase"] == "succeeded" and "has not improved" in result["reason"]
    assert export["extra"]["step"] == best, shown


def test_options_override_the_config(trained: Path) -> None:
    words = ("train", "ctr.yaml", "--job_name=other", "--num_workers=4", "--ps_mode=async", "--dry-run")
    job = yaml.safe_load(elasticdl(trained, *words).partition("name: other")[2])

    assert job["workers"]["replicas"] == job["workers"]["max"] == 4
    assert (job["ps"]["mode"], job["ps"]["scale_lr_by_staleness"], job["evaluation"]["wait"]) == ("async", True, True)
