"""Gives each test its own home directory, and runs `elasticdl` in this process."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from elasticdl.cli.main import cli
from elasticdl.rpc import elasticdl_pb2 as pb
from tests.unit.cli.fake_api import FakeApi

MODEL = """
from torch import nn

def forward(width=4): return nn.Linear(2, width)
def loss(labels, predictions): return 0
def optimizer(parameters, lr=0.1): return None
def dataset_fn(dataset, mode, metadata): return dataset
"""

Run = Callable[..., Result]
FRAMEWORKS = {name: ModuleSpec(name, None) for name in ("torch", "tensorflow", "keras")}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ELASTICDL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "no-kubeconfig"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


@pytest.fixture(autouse=True)
def _frameworks(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests launch nothing, so they pass without torch and TensorFlow, too."""
    monkeypatch.setattr("elasticdl.jobs.preflight.find_spec", lambda name: FRAMEWORKS.get(name) or find_spec(name))


@pytest.fixture
def elasticdl(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command line; launching anything is a failure of the test."""

    def refuse(*arguments: object, **named: object) -> int:
        raise AssertionError("a wrong job was launched")

    monkeypatch.setattr("elasticdl.launcher.local.processes.start_launcher", refuse)
    runner = CliRunner()
    return lambda *words: runner.invoke(cli, [str(word) for word in words])


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeApi:
    """The cluster of the current context."""
    api = FakeApi()
    (tmp_path / "kubeconfig").write_text("")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setattr("elasticdl.kube.api.Api.connect", lambda *_, **__: api)
    return api


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    """A directory with one good model and some data."""
    directory = tmp_path / "zoo"
    directory.mkdir()
    (directory / "digits.py").write_text(textwrap.dedent(MODEL))
    (directory / "train.csv").write_text("a,b\n1,2\n3,4\n")
    return directory


@pytest.fixture
def status() -> pb.JobStatus:
    """A job in the middle of its life."""
    return pb.JobStatus(
        name="digits",
        kind="training",
        phase="running",
        step=30,
        total_steps=85,
        records=1920,
        total_records=5391,
        epoch=1,
        epochs=3,
        records_per_epoch=1797,
        loss=0.25,
        loss_step=30,
        records_per_s=1157.0,
        metrics={"accuracy": 0.915},
        metrics_step=29,
        round=3,
        desired_workers=2,
        min_workers=1,
        max_workers=4,
        checkpoint_step=20,
        started_at=1000.0,
        now=1012.0,
        workers=[
            pb.WorkerStatus(id="worker-0", pid=11, state="member", since=1002, rank=0, logical_ranks=2, step=30),
            pb.WorkerStatus(id="worker-1", pid=12, state="lost", since=1008, rank=-1, step=18, reason="SIGKILL"),
            pb.WorkerStatus(id="worker-2", pid=13, state="starting", since=1008.5, rank=-1, step=-1),
        ],
        events=[
            pb.EventStatus(at=1002, kind="worker-joined", replica="worker-0", round=1),
            pb.EventStatus(
                at=1008, kind="worker-lost", replica="worker-1", reason="SIGKILL", round=2, step=18, cost_s=0.18
            ),
        ],
    )
