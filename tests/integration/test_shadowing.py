"""Modules of the user with the names of Python's own, beside the model, beside the script, or where the job starts.

A job starts five kinds of processes. None of them takes such a module for Python's, and the user's own modules with
names of their own are found.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from elasticdl.worker.script import add_script_directory

STRAY = ("random", "queue", "types", "logging", "socket", "json", "copy", "select", "csv")

MODEL = """
import torch
from torch import nn

import my_layers


class Numbers:
    def __len__(self):
        return 24

    def __getitem__(self, number):
        return torch.full((4,), float(number)), torch.tensor(number % 2)


def custom_data_reader(data_path):
    return Numbers()


def forward():
    return my_layers.build()


def loss(labels, predictions):
    return nn.functional.cross_entropy(predictions, labels)


def optimizer(parameters, lr=0.01):
    return torch.optim.SGD(parameters, lr=lr)


def dataset_fn(dataset, mode, metadata):
    return dataset
"""

LAYERS = """
import random
from torch import nn


def build():
    random.random()
    return nn.Linear(4, 2)
"""

SCRIPT = """
import elasticdl.torch as elastic
import torch
from torch import nn

import my_layers
import model

net = my_layers.build()
job = elastic.join(net, torch.optim.SGD(net.parameters(), lr=0.01), model.Numbers(), global_batch_size=8)
for step in job:
    for features, labels in step:
        step.backward(nn.functional.cross_entropy(net(features), labels))
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A model, a script and stray modules beside them, which fail when they are imported."""
    for name in STRAY:
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('the stray {name}.py was imported')\n")
    for name, text in (("model", MODEL), ("my_layers", LAYERS), ("train", SCRIPT)):
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def elasticdl(directory: Path, *words: str) -> str:
    """Runs `elasticdl` as the installed command does, without the working directory on its path."""
    environ = os.environ | {"ELASTICDL_HOME": str(directory / "home")}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "elasticdl.cli", *words],
        cwd=directory, env=environ, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    logs = [path.read_text()[-2000:] for path in sorted(directory.glob("home/jobs/*/logs/*.log"))]
    assert done.returncode == 0, "\n".join([done.stdout[-3000:], done.stderr[-3000:], *logs])
    return done.stdout


def test_stray_modules_beside_the_model_do_not_break_a_training_job(directory: Path) -> None:
    printed = elasticdl(
        directory, "train", "--model_zoo=.", "--model_def=model.forward", "--data_format=python", "--training_data=x",
        "--minibatch_size=4", "--num_workers=2", "--job_name=shadows", "--output=trained",
    )  # fmt: skip

    assert "24 trained" in printed
    assert (directory / "trained").is_dir()


def test_stray_modules_do_not_break_a_job_with_parameter_servers(directory: Path) -> None:
    pytest.importorskip("elasticdl.ps._native")
    printed = elasticdl(
        directory, "train", "--model_zoo=.", "--model_def=model.forward", "--data_format=python", "--training_data=x",
        "--minibatch_size=4", "--num_workers=1", "--num_ps_pods=1", "--ps_mode=async", "--job_name=shadows",
    )  # fmt: skip

    assert "24 trained" in printed


@pytest.mark.slow
def test_stray_modules_beside_the_script_do_not_break_a_script_job(directory: Path) -> None:
    printed = elasticdl(directory, "run", "--workers", "1:2", "--job_name=shadows", "train.py")

    assert "24 trained" in printed


def test_the_directory_of_a_script_comes_after_the_standard_library_and_before_installed_packages() -> None:
    library = str(Path(os.__file__).parent)
    path = ["/wished", "/python311.zip", library, f"{library}/lib-dynload", "/site-packages"]

    placed = add_script_directory(path, Path("/script"))

    assert placed == ["/wished", "/python311.zip", library, f"{library}/lib-dynload", "/script", "/site-packages"]
    assert add_script_directory(["/frozen"], Path("/script")) == ["/script", "/frozen"]
