"""Docker, podman and buildah: which of them answers, and what each is told. Only argument lists, never a shell."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elasticdl.errors import SpecError

ENGINES = ("docker", "podman", "buildah")
# 1980-01-01, the oldest time a wheel can carry: the same files give the same layers on any day.
EPOCH = 315532800

# A command that fails where an engine is installed but cannot build: docker's daemon may be down.
_ASKED = {"docker": ["version", "--format", "{{.Server.Version}}"], "podman": ["version"], "buildah": ["version"]}
_HAS = {"docker": ["image", "inspect"], "podman": ["image", "exists"], "buildah": ["inspect", "--type", "image"]}
_FIXES = {"docker": "start its daemon"}


@dataclass(frozen=True, slots=True)
class Engine:
    """One way to make images."""

    name: str

    def build(
        self, image: str, *, dockerfile: Path, context: Path, arguments: Mapping[str, str], passed: Sequence[str] = ()
    ) -> list[str]:
        """The command that builds `image`; `passed` goes to the engine as it is."""
        command = [self.name, "build", "--tag", image, "--file", str(dockerfile)]
        # Podman and buildah keep no cache and take today's time unless told; BuildKit reads the argument.
        if self.name != "docker":
            command += ["--layers", "--timestamp", str(EPOCH)]
        for key, value in sorted({"SOURCE_DATE_EPOCH": str(EPOCH), **arguments}.items()):
            command += ["--build-arg", f"{key}={value}"]
        return [*command, *passed, str(context)]

    def push(self, image: str, passed: Sequence[str] = ()) -> list[str]:
        return [self.name, "push", *passed, image]

    def has(self, image: str) -> bool:
        """Whether the engine holds an image of this name."""
        done = subprocess.run([self.name, *_HAS[self.name], image], capture_output=True, stdin=subprocess.DEVNULL)
        return done.returncode == 0


def find(wished: str = "", timeout_s: float = 20.0) -> Engine:
    """The first engine that answers, or the one wished for. Raises SpecError with what is wrong with each."""
    found = {}
    for name in [wished] if wished else ENGINES:
        why = _complaint(name, timeout_s)
        if not why:
            return Engine(name)
        found[name] = why
    told = "; ".join(f"{name}: {why}" for name, why in found.items())
    raise SpecError(f"no container engine to build or push with ({told}); install one, e.g. `apt-get install podman`")


def _complaint(name: str, timeout_s: float) -> str:
    """Why an engine cannot be used; nothing if it can."""
    if shutil.which(name) is None:
        return "not installed"
    try:
        done = subprocess.run(
            [name, *_ASKED[name]], capture_output=True, text=True, timeout=timeout_s, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return str(exc)
    if done.returncode == 0:
        return ""
    said = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
    return f"exit code {done.returncode}: {said}" + (f" ({_FIXES[name]})" if name in _FIXES else "")
