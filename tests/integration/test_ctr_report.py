"""The report of a job from a config has all its parts and the right numbers."""

from __future__ import annotations

import json
import re
import shutil
from base64 import b64encode
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn import metrics

from elasticdl.ctr.models.job import CtrJob
from elasticdl.ctr.report.measurement import ModelMeasurement
from elasticdl.data.dataset import Dataset, Mode
from elasticdl.data.sources import open_source
from elasticdl.spec import DataSpec
from tests.integration.commands import elasticdl

ROWS = 2000
CONFIG = """
data: clicks.csv
label: clicked
model: {deepfm: {embedding_dim: 4, hidden_units: [16]}}
features: {noise: normalizer()}
training: {epochs: 1, evaluations: 1, batch_size: 64, learning_rate: 0.02}
workers: 1
ps: 1
"""


def clicks(path: Path) -> None:
    """The city matters much, the price little, the noise not at all; every row has the same country."""
    random = np.random.default_rng(0)
    city, price, noise = random.integers(0, 10, ROWS), random.exponential(1.0, ROWS), random.normal(size=ROWS)
    chance = 1 / (1 + np.exp(-(0.6 * city - 3.5 + 0.3 * price)))
    lines = ["clicked,city,price,noise,country"]
    for c, p, n, y in zip(city, price, noise, random.random(ROWS) < chance, strict=True):
        lines.append(f"{int(y)},<b>{c}</b>,{p:.3f},{n:.3f},x")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("report")
    clicks(directory / "clicks.csv")
    (directory / "ctr.yaml").write_text(CONFIG)
    shown = elasticdl(directory, "train", "ctr.yaml", "--job_name=clicks")
    assert f"report       {directory / 'ctr-ctr' / 'report' / 'index.html'}" in shown
    return directory


def page_of(trained: Path) -> str:
    return (trained / "ctr-ctr" / "report" / "index.html").read_text(encoding="utf-8")


def test_the_report_is_complete_and_self_contained(trained: Path) -> None:
    page = page_of(trained)

    for title in (
        "Quality",
        "Training",
        "ROC curve and calibration",
        "Predicted probabilities",
        "Importance",
        "Columns",
    ):
        assert re.search(f"<h2>[^<]*{title}", page), title
    for name in ("training", "roc", "calibration", "probabilities", "importance"):
        content = (trained / "ctr-ctr" / "report" / f"{name}.png").read_bytes()
        assert f'src="data:image/png;base64,{b64encode(content).decode()}"' in page
    assert "http://" not in page and "https://" not in page and "<script" not in page and "<b>" not in page
    assert set(re.findall(r'(?:src|href)="([^":]*):', page)) == {"data"}
    assert "elasticdl train ctr.yaml --job_name=clicks" in page  # the command
    assert f"torch {torch.__version__}" in page and "batch_size: 64" in page
    assert "constant: the same value in every row" in page and "chosen in ctr.yaml" in page


def test_the_numbers_of_the_report_are_those_of_the_exported_program(trained: Path) -> None:
    export = trained / "ctr-ctr" / "model"
    program, job = torch.export.load(export / "model.pt2").module(), CtrJob(export)
    page = page_of(trained)

    for name, part in (("validation", "80%:90%"), ("test", "90%:100%")):
        source = open_source(f"{trained / 'clicks.csv'}#rows={part}", DataSpec())
        batch = job.dataset(Dataset(source, Mode.EVALUATION), Mode.EVALUATION).read_batch(np.arange(200))
        assert batch is not None
        with torch.no_grad():
            chances = program(batch.features)["probability"].double().numpy()
        labels = batch.labels["label"].numpy()
        rate = float(labels.mean())
        row = [
            name, "200", f"{int(labels.sum())}", f"{rate:.2%}", f"{metrics.log_loss(labels, chances):.5f}",
            f"{metrics.log_loss(labels, np.full(200, rate)):.5f}",
            f"{1 - metrics.log_loss(labels, chances) / metrics.log_loss(labels, np.full(200, rate)):.2%}",
            f"{metrics.roc_auc_score(labels, chances):.5f}", f"{chances.sum() / labels.sum():.4f}",
        ]  # fmt: skip
        assert f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" in page


def test_the_report_evaluates_the_validation_rows_as_the_job_did_at_its_end(trained: Path) -> None:
    result = json.loads((trained / "home" / "jobs" / "clicks" / "result.json").read_text())

    measurement = ModelMeasurement.load(trained / "ctr-ctr" / "report" / "measurement.json")

    assert measurement.step == result["step"] == 25 and measurement.uses_exported_program
    assert measurement.validation is not None
    assert measurement.validation.logloss == pytest.approx(result["metrics"]["logloss"], abs=1e-4)
    assert measurement.validation.calibration == pytest.approx(result["metrics"]["calibration"], abs=1e-3)


def test_important_columns_rank_high_and_dropped_columns_have_no_importance(trained: Path) -> None:
    measurement = ModelMeasurement.load(trained / "ctr-ctr" / "report" / "measurement.json")

    worth = {importance.column: importance for importance in measurement.importance}
    assert set(worth) == {"city", "price", "noise"} and measurement.importance[0].column == "city"
    assert worth["city"].logloss_rise > 3 * abs(worth["noise"].logloss_rise)
    assert measurement.importance_rows == 200 and measurement.evaluated_on == "test"


def test_without_an_export_the_newest_checkpoint_is_evaluated_with_the_same_result(
    trained: Path, tmp_path: Path
) -> None:
    before = ModelMeasurement.load(trained / "ctr-ctr" / "report" / "measurement.json")
    shutil.move(trained / "ctr-ctr" / "model", tmp_path / "model")
    try:
        shown = elasticdl(trained, "ctr", "report", "clicks", "-o", str(tmp_path / "again"), "--repeats", "1")
    finally:
        shutil.move(tmp_path / "model", trained / "ctr-ctr" / "model")

    again = ModelMeasurement.load(tmp_path / "again" / "measurement.json")
    assert shown.split() == [str(tmp_path / "again" / "index.html")]
    assert not again.uses_exported_program and again.step == before.step
    assert again.test is not None and before.test is not None
    assert again.test.logloss == pytest.approx(before.test.logloss, rel=1e-6)
    assert again.parameters == before.parameters
