"""Wheels of installed packages, as pip takes them."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.metadata import Distribution
from pathlib import Path

from elasticdl.image import wheel

FILES = {
    "elasticdl/__init__.py": "version = 7\n",
    "elasticdl/__pycache__/__init__.cpython-311.pyc": "stale",
    "elasticdl-7.dist-info/METADATA": "Metadata-Version: 2.1\nName: elasticdl\nVersion: 7\n",
    "elasticdl-7.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "elasticdl-7.dist-info/entry_points.txt": "[console_scripts]\nelasticdl = elasticdl:main\n",
    "elasticdl-7.dist-info/INSTALLER": "pip",
    "elasticdl-7.dist-info/direct_url.json": "{}",
}


def installed(directory: Path) -> Distribution:
    for name, content in FILES.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(content)
    record = "".join(f"{name},,\n" for name in [*FILES, "../../bin/elasticdl", "elasticdl-7.dist-info/RECORD"])
    (directory / "elasticdl-7.dist-info" / "RECORD").write_text(record)
    return Distribution.at(directory / "elasticdl-7.dist-info")


def test_an_installed_package_becomes_a_wheel_that_pip_accepts(tmp_path: Path) -> None:
    packed = wheel.pack_installed(installed(tmp_path / "site"), tmp_path)

    target = tmp_path / "again"
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--quiet", "--target", str(target)]
    subprocess.run([*pip, str(packed)], check=True)
    assert packed.name == "elasticdl-7-py3-none-any.whl"
    assert (target / "elasticdl" / "__init__.py").read_text() == "version = 7\n"
    assert (target / "bin" / "elasticdl").exists()
    assert not any("__pycache__" in name or "direct_url" in name for name in zipfile.ZipFile(packed).namelist())
