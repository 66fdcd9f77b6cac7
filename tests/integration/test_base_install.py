"""Without any extra the control plane works, and features that need one name the command that installs it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from elasticdl.extras import install_command

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "01-train-a-model"
# What extras bring, by the names under which it is imported.
OPTIONAL = (
    "torch,tensorflow,keras,lightning,accelerate,transformers,matplotlib,pyarrow,tensorboard,safetensors,zmq,duckdb,"
    "scipy,threadpoolctl,optuna,kubernetes,websocket,kopf,PIL,psycopg,odps,s3fs,gcsfs,adlfs"
)
# The packages of the control plane, and what of them draws, or needs an extra by its purpose.
CONTROL_PLANE = ("api", "cli", "jobs", "kube", "launcher", "master", "operator", "rpc", "scheduler", "sim", "spec")
WITH_EXTRAS = (
    "elasticdl.cli.screens.search_table",
    "elasticdl.jobs.timeline_figure",
    "elasticdl.operator.handlers",
    "elasticdl.scheduler.policies.gavel",
    "elasticdl.scheduler.policies.sia",
    "elasticdl.sim.results.figures",
    "elasticdl.sim.results.html",
)
IMPORT_ALL = """
import importlib, pkgutil, sys
import elasticdl
(root,) = elasticdl.__path__
for name in sys.argv[1].split(","):
    importlib.import_module(f"elasticdl.{name}")
    for module in pkgutil.walk_packages([f"{root}/{name}"], f"elasticdl.{name}."):
        if not module.name.endswith(".__main__") and module.name not in sys.argv[2].split(","):
            importlib.import_module(module.name)
            print(module.name)
"""


def run(tmp_path: Path, *argv: str | Path, absent: str = OPTIONAL) -> subprocess.CompletedProcess[str]:
    paths = [ROOT / "src", ROOT / "tests" / "integration" / "absent"]
    environ = {
        **os.environ,
        "ABSENT": absent,
        "ELASTICDL_HOME": str(tmp_path / "home"),
        "KUBECONFIG": str(tmp_path / "none"),
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
    }
    words = [str(word) for word in argv]
    return subprocess.run(words, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)


def elasticdl(tmp_path: Path, *words: str | Path, absent: str = OPTIONAL) -> subprocess.CompletedProcess[str]:
    return run(tmp_path, sys.executable, "-P", "-m", "elasticdl.cli", *words, absent=absent)


@pytest.fixture
def train(tmp_path: Path) -> list[str]:
    """The words of the first job in the README."""
    done = run(tmp_path, sys.executable, "-m", "elasticdl.zoo.digits.data", tmp_path / "data")
    assert done.returncode == 0, done.stderr
    data = f"--training_data={tmp_path / 'data' / 'train.csv'}"
    return ["train", f"--model_zoo={EXAMPLE}", "--model_def=model.forward", data, "--job_name=digits"]


def test_the_control_plane_is_imported_without_any_extra(tmp_path: Path) -> None:
    done = run(tmp_path, sys.executable, "-c", IMPORT_ALL, ",".join(CONTROL_PLANE), ",".join(WITH_EXTRAS))

    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.splitlines()) > 200


def test_jobs_are_described_for_this_machine_and_for_a_cluster(tmp_path: Path, train: list[str]) -> None:
    here = elasticdl(tmp_path, *train, "--dry-run")
    pods = elasticdl(tmp_path, *train, "--dry-run", "--image_name=digits:1", "--volume=claim_name=c,mount_path=/data")

    assert here.returncode == 0 and "name: digits" in here.stdout, here.stderr
    assert pods.returncode == 0 and "image: digits:1" in pods.stdout, pods.stderr


def test_a_job_is_refused_before_the_launch_with_a_list_of_missing_extras(tmp_path: Path, train: list[str]) -> None:
    refused = elasticdl(tmp_path, *train)

    assert refused.returncode == 2
    assert "needs torch, safetensors and pyarrow, not installed in" in refused.stderr
    assert install_command("torch") in refused.stderr
    assert not (tmp_path / "home" / "jobs" / "digits").exists()


def test_policies_are_simulated_without_extras_and_a_report_names_the_missing_one(tmp_path: Path) -> None:
    words = ("simulate", "--policy=max-min", "--trace=synthetic:jobs=5,per_hour=30", "--processes=1")

    simulated = elasticdl(tmp_path, *words)
    report = elasticdl(tmp_path, *words, "--report=page")
    parquet = elasticdl(tmp_path, *words, "--parquet=jobs.parquet")

    assert simulated.returncode == 0 and "max-min" in simulated.stdout, simulated.stderr
    assert report.returncode == 2 and install_command("figures") in report.stderr
    assert parquet.returncode == 2 and install_command("parquet") in parquet.stderr


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["experiment", "two-jobs"], "figures"),
        (["features", "analyze", "data/train.csv", "--label=label", "-o", "features.yaml"], "features"),
        (["ctr", "search", "ctr.yaml", "--trials=1"], "features"),
    ],
)
def test_features_that_need_an_extra_name_it_at_once(tmp_path: Path, words: list[str], extra: str) -> None:
    (tmp_path / "ctr.yaml").write_text("{data: absent.csv, label: clicked, model: deepfm}")

    refused = elasticdl(tmp_path, *words)

    assert refused.returncode == 2 and refused.stderr.count("\n") == 1, refused.stderr
    assert f"{install_command(extra)}\n" in refused.stderr


def test_a_job_without_matplotlib_ends_without_a_figure_and_says_so_once(tmp_path: Path, train: list[str]) -> None:
    done = elasticdl(tmp_path, *train, "--num_epochs=2", absent="matplotlib,tensorboard,duckdb,PIL")

    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert output.count("no timeline: ") == output.count(install_command("figures")) == 1
    assert not (tmp_path / "home" / "jobs" / "digits" / "timeline.png").exists()
    assert list((tmp_path / "home" / "jobs" / "digits" / "tensorboard").glob("*tfevents*"))

    timeline = elasticdl(tmp_path, "timeline", "digits", absent="matplotlib")
    assert timeline.returncode == 2 and f"a timeline needs matplotlib, not installed in {sys.prefix}" in timeline.stderr


def test_extras_include_the_extras_they_build_on() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    for name in ("tensorflow", "lightning", "huggingface"):
        assert set(extras["torch"]) <= set(extras[name])
    for name in ("postgres", "maxcompute"):
        assert set(extras["features"]) <= set(extras[name])
