"""The wheel of the running ElasticDL: built from its checkout, or repacked from its installed files."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import shutil
import sys
import zipfile
from collections.abc import Callable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import elasticdl
from elasticdl.errors import SpecError
from elasticdl.image.engine import EPOCH, run_streaming

SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src", "native")
# Files that pip adds when it installs; they say where this copy came from.
_INSTALLER_FILES = {"INSTALLER", "REQUESTED", "RECORD", "direct_url.json"}
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)


def find_checkout() -> Path | None:
    """The checkout that runs; None if ElasticDL is installed."""
    root = Path(elasticdl.__file__).resolve().parents[2]
    return root if all((root / name).exists() for name in SOURCES) else None


def make_wheel(target: Path, show: Callable[[str], None]) -> Path:
    """Write the wheel to the directory `target`. Raises SpecError or ImageBuildFailed."""
    if not sys.platform.startswith("linux"):
        raise SpecError(
            f"an image needs a wheel for Linux, and this ElasticDL runs on {sys.platform}; "
            f"build the image on Linux, or name an existing one with --base"
        )
    root = find_checkout()
    return build_from_checkout(root, target, show) if root else pack_installed(_installed_distribution(), target)


def build_from_checkout(root: Path, target: Path, show: Callable[[str], None]) -> Path:
    """The wheel of a checkout, built in a copy: setuptools leaves files behind that the next wheel would include."""
    copy = target / "sources"
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so")
    for name in SOURCES:
        if (root / name).is_dir():
            shutil.copytree(root / name, copy / name, ignore=ignore)
        else:
            copy.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, copy / name)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(target), str(copy)]
    run_streaming(command, show, environ={"SOURCE_DATE_EPOCH": str(EPOCH)})
    shutil.rmtree(copy)
    return next(target.glob("elasticdl-*.whl"))


def pack_installed(installed: Distribution, target: Path) -> Path:
    """A wheel with the files and the tag of the one from which ElasticDL was installed."""
    files = [
        file
        for file in installed.files or ()
        if ".." not in file.parts and "__pycache__" not in file.parts and file.name not in _INSTALLER_FILES
    ]
    dist_info = next(file.parent for file in files if file.name == "METADATA")
    tags = (installed.read_text("WHEEL") or "").split("Tag: ")
    version = installed.metadata["Version"]
    wheel = target / f"elasticdl-{version}-{tags[1].split()[0] if len(tags) > 1 else 'py3-none-any'}.whl"
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(files, key=str):
            content = Path(str(file.locate())).read_bytes()
            archive.writestr(_zip_entry(str(file)), content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            rows.writerow([str(file), f"sha256={digest}", len(content)])
        rows.writerow([str(dist_info / "RECORD"), "", ""])
        archive.writestr(_zip_entry(str(dist_info / "RECORD")), record.getvalue())
    return wheel


def _zip_entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, date_time=_ZIP_EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry


def _installed_distribution() -> Distribution:
    try:
        return distribution("elasticdl")
    except PackageNotFoundError as exc:
        raise SpecError(
            "ElasticDL is neither installed nor run from a checkout, so its wheel cannot be built; "
            "run `pip install .` in a clone, or name an existing image with --base"
        ) from exc
