"""Creates virtual environments for peers that cannot be installed beside ElasticDL; each is created once and kept."""

from __future__ import annotations

import subprocess
import sys
import venv
from importlib.metadata import version
from pathlib import Path

HOME = Path.home() / ".cache" / "elasticdl-bench"
DEFAULT = HOME / "torchft"
_TORCHFT = "import numpy, torchft; from torchft.coordination import LighthouseServer"
_TENSORFLOW = "import tensorflow"
# It calls polars in a way that polars 2 has dropped.
_FUXICTR = "from fuxictr.preprocess import FeatureProcessor; import polars; assert polars.__version__ < '2'"


def torchft(directory: Path = DEFAULT) -> Path:
    """Returns the `bin` directory of an environment with torchft, and creates it if necessary."""
    # Our torch first: torchft accepts any from 2.7 on, and both must train with the same one.
    return _ensure_environment(directory, _TORCHFT, ["torch==" + _our_torch()], ["torchft-nightly", "numpy"])


def tensorflow(directory: Path = HOME / "tensorflow") -> Path:
    return _ensure_environment(directory, _TENSORFLOW, ["tensorflow-cpu==2.21.0"])


def deepctr(directory: Path = HOME / "deepctr") -> Path:
    # It needs requests and does not say so.
    return _ensure_environment(
        directory, "import deepctr_torch", ["torch==" + _our_torch()], ["deepctr-torch==0.3.0", "requests"]
    )


def fuxictr(directory: Path = HOME / "fuxictr-encoder") -> Path:
    """Returns the `bin` directory of an environment with FuxiCTR, on our torch, which is the one for CPUs."""
    return _ensure_environment(
        directory, _FUXICTR, ["torch==" + version("torch")], ["fuxictr==2.3.10", "polars<2", "setuptools<81"]
    )


def _ensure_environment(directory: Path, check: str, *packages: list[str]) -> Path:
    programs = directory / "bin"
    command = [str(programs / "python"), "-W", "ignore", "-c", check]
    if not Path(command[0]).exists() or subprocess.run(command, capture_output=True, check=False).returncode:
        print(f"creating {directory} for {packages[-1][0]}; this is done once", file=sys.stderr)
        venv.create(directory, with_pip=True, clear=True)
        for arguments in packages:
            subprocess.run([programs / "pip", "install", "--quiet", *arguments], check=True)
        subprocess.run(command, check=True)
    return programs


def _our_torch() -> str:
    return version("torch").partition("+")[0]
