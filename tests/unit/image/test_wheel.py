"""The wheel of an installed package has the same files, and nothing of where they were installed."""

from __future__ import annotations

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


def installed(root: Path) -> Distribution:
    for name, content in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    record = "".join(f"{name},,\n" for name in [*FILES, "../../bin/elasticdl", "elasticdl-7.dist-info/RECORD"])
    (root / "elasticdl-7.dist-info" / "RECORD").write_text(record)
    return Distribution.at(root / "elasticdl-7.dist-info")


def test_the_same_files_make_the_same_wheel(tmp_path: Path) -> None:
    contents = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        contents.append(wheel.pack_installed(installed(tmp_path / name / "site"), tmp_path / name).read_bytes())

    assert contents[0] == contents[1]


def test_a_checkout_is_found_from_the_package_that_runs() -> None:
    checkout = wheel.find_checkout()

    assert checkout is not None and (checkout / "deploy" / "lock.py").exists()
