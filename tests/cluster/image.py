"""The image of the cluster suite: elasticdl:ci with a model zoo and the operator, as an archive that a node can load.

python -m tests.cluster.image [torch|tensorflow] prints the archive's path.
"""

from __future__ import annotations

import configparser
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path("~/.cache/elasticdl-cluster").expanduser()
KUBE = ROOT.parent / "shared" / "kube" / "kube"
# In full: a pod that asks for elasticdl:ci means this one, and podman would call it localhost/elasticdl:ci.
IMAGE = "docker.io/library/elasticdl:ci"
BASE = "python:3.11-slim-bookworm"
CERTIFICATES = Path("/etc/ssl/certs")
PODMAN = ("podman", "--cgroup-manager=cgroupfs")
# Where rlimits cannot be raised, podman's defaults are refused.
RUN = ("run", "--rm", "--ulimit", "nofile=20000:20000", "--ulimit", "nproc=4096:4096")

Kind = Literal["torch", "tensorflow"]


def why_not() -> str:
    """Why no image can be built here; nothing if it can."""
    if shutil.which("podman") is None:
        return "podman is not installed"
    if os.geteuid() != 0:
        return "building an image for the nodes needs root"
    return "" if _has(BASE) or KUBE.exists() else f"there is no image {BASE} and nothing to make it with"


def ensure(kind: Kind) -> Path:
    """The archive of elasticdl:ci for the sources as they are; built if there is none yet."""
    CACHE.mkdir(parents=True, exist_ok=True)
    archive = CACHE / f"elasticdl-ci-{kind}-{content_hash()}.tar"
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _build(kind)
            _save(archive)
            for old in set(CACHE.glob(f"elasticdl-ci-{kind}-*.tar")) - {archive}:
                old.unlink()
    return archive


def content_hash() -> str:
    """A hash of everything in the image: the package, its native core, its metadata, the models and the build."""
    digest = hashlib.sha256()
    single = [ROOT / "pyproject.toml", ROOT / "setup.py", Path(__file__)]
    trees = [path for name in ("src", "native", "model_zoo") for path in sorted((ROOT / name).rglob("*"))]
    for path in single + [path for path in trees if path.is_file() and "__pycache__" not in path.parts]:
        if path.suffix != ".so" and not any(part.endswith(".egg-info") for part in path.parts):
            digest.update(f"{path.relative_to(ROOT)}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def build_options() -> tuple[list[str], list[str]]:
    """(options of `zoo build`, options of podman) by which pip in a build reaches what pip on this machine reaches."""
    settings = _pip_settings()
    passed = ["--network=host", "--isolation=chroot"]
    mounted = {CERTIFICATES} if CERTIFICATES.exists() else set()
    for word in " ".join(settings.values()).split():
        path = Path(word.removeprefix("file://"))
        if path.is_absolute() and CERTIFICATES not in path.parents:
            mounted.add(path.parent if path.name == "simple" else path)
    passed += [word for path in sorted(mounted) for word in ("--volume", f"{path}:{path}:ro")]
    arguments = [f"PIP_{key.upper().replace('-', '_')}={value}" for key, value in sorted(settings.items())]
    arguments += [f"BASE={BASE}", "UNPINNED_BASE=yes"]  # made on this machine, where no registry may be in reach
    # A torch that lies on this machine is the one to take; the index of torch need not be in reach.
    if "find-links" in settings:
        arguments.append("TORCH_INDEX=")
    return [word for argument in arguments for word in ("--build-arg", argument)], passed


def podman(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs podman, with runc if it is installed: the runtime of the nodes."""
    runtime = shutil.which("runc", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    runtime_options = ["--runtime", runtime] if runtime else []
    return subprocess.run([*PODMAN, *runtime_options, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def make_base() -> None:
    """Creates the base image if it does not exist: there may be no registry to pull it from."""
    if not _has(BASE):
        subprocess.run([str(KUBE), "base", BASE], check=True, stdout=subprocess.DEVNULL)


def zoo_build(*words: str) -> subprocess.CompletedProcess[str]:
    """`elasticdl zoo build` of these sources with podman."""
    options, passed = build_options()
    command = [sys.executable, "-m", "elasticdl.cli", "zoo", "build", *words, "--engine", "podman"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [*command, *options, "--", *passed]
    return subprocess.run(command, env=environ, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def _build(kind: Kind) -> None:
    make_base()
    with tempfile.TemporaryDirectory() as directory:
        models = Path(directory) / "model_zoo"
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "model_zoo", models, ignore=skipped)
        for name in ("mnist", "digits", "ctr"):
            shutil.copytree(ROOT / "src" / "elasticdl" / "zoo" / name, models / name, ignore=skipped)
        done = zoo_build(str(models), "--image", IMAGE, "--extra", kind, "--extra", "operator")
    if done.returncode:
        raise RuntimeError(f"{IMAGE} was not built:\n{done.stderr[-4000:]}")


def _save(archive: Path) -> None:
    part = archive.with_suffix(".part")
    part.unlink(missing_ok=True)
    done = podman("save", "--format", "docker-archive", "--output", str(part), IMAGE)
    if done.returncode:
        raise RuntimeError(f"{IMAGE} was not saved: {done.stderr}")
    part.rename(archive)


def _has(image: str) -> bool:
    return subprocess.run([*PODMAN, "image", "exists", image], capture_output=True).returncode == 0


def _pip_settings() -> dict[str, str]:
    """index-url, find-links and cert of pip here; the environment wins over its files."""
    settings: dict[str, str] = {}
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True)
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    parser.read_string("[pip]\n" + listed.stdout)
    for key, value in parser["pip"].items():
        name = key.rpartition(".")[2]
        if name in ("index-url", "find-links", "cert") and (name not in settings or ":env:" in key):
            settings[name] = value.strip("'\"")
    return settings


if __name__ == "__main__":
    wished = sys.argv[1] if len(sys.argv) > 1 else "torch"
    print(ensure("tensorflow" if wished == "tensorflow" else "torch"))
