"""A virtual environment of its own for the peer torchft, made once and kept."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

DEFAULT = Path.home() / ".cache" / "elasticdl-bench" / "torchft"
CHECK = "import numpy, torchft; from torchft.coordination import LighthouseServer"


def torchft(directory: Path = DEFAULT) -> Path:
    """The `bin` directory of an environment where torchft works; made if it is not there."""
    programs = directory / "bin"
    if not _works(programs):
        print(f"making {directory} for torchft-nightly; this is done once", file=sys.stderr)
        venv.create(directory, with_pip=True, clear=True)
        # Our torch first: torchft takes any from 2.7 on, and both shall train with the same one.
        _pip(programs, "torch==" + _our_torch())
        _pip(programs, "torchft-nightly", "numpy")
        subprocess.run([programs / "python", "-W", "ignore", "-c", CHECK], check=True)
    return programs


def _works(programs: Path) -> bool:
    python = programs / "python"
    command = [str(python), "-W", "ignore", "-c", CHECK]
    return python.exists() and subprocess.run(command, capture_output=True, check=False).returncode == 0


def _our_torch() -> str:
    from importlib.metadata import version

    return version("torch").partition("+")[0]


def _pip(programs: Path, *packages: str) -> None:
    subprocess.run([programs / "pip", "install", "--quiet", *packages], check=True)


if __name__ == "__main__":
    print(torchft())
