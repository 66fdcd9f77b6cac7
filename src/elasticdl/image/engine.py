"""The container engines docker, podman and buildah: which of them works, the commands it takes, and running them.

Commands are argument lists, never a shell.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from elasticdl.errors import ImageBuildFailed, SpecError

ENGINES = ("docker", "podman", "buildah")
# 1980-01-01, the oldest time a wheel can carry: the same files give the same layers on any day.
EPOCH = 315532800

# A command that fails where an engine is installed but cannot build: docker's daemon may be down.
_VERSION_COMMANDS = {
    "docker": ["version", "--format", "{{.Server.Version}}"],
    "podman": ["version"],
    "buildah": ["version"],
}
_EXISTS_COMMANDS = {
    "docker": ["image", "inspect"],
    "podman": ["image", "exists"],
    "buildah": ["inspect", "--type", "image"],
}
_FIXES = {"docker": "start its daemon"}


@dataclass(frozen=True, slots=True)
class ContainerEngine:
    """One way to make images."""

    name: str

    def build_command(
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

    def push_command(self, image: str, passed: Sequence[str] = ()) -> list[str]:
        return [self.name, "push", *passed, image]

    def has_image(self, image: str) -> bool:
        """Whether the engine holds an image of this name."""
        done = subprocess.run(
            [self.name, *_EXISTS_COMMANDS[self.name], image], capture_output=True, stdin=subprocess.DEVNULL
        )
        return done.returncode == 0


def find_engine(requested: str = "", timeout_s: float = 20.0) -> ContainerEngine:
    """The first engine that answers, or the one wished for. Raises SpecError with what is wrong with each."""
    problems = {}
    for name in [requested] if requested else ENGINES:
        why = _engine_problem(name, timeout_s)
        if not why:
            return ContainerEngine(name)
        problems[name] = why
    described = "; ".join(f"{name}: {why}" for name, why in problems.items())
    raise SpecError(
        f"no container engine to build or push with ({described}); install one, e.g. `apt-get install podman`"
    )


def _engine_problem(name: str, timeout_s: float) -> str:
    """Why an engine cannot be used; nothing if it can."""
    if shutil.which(name) is None:
        return "not installed"
    try:
        done = subprocess.run(
            [name, *_VERSION_COMMANDS[name]],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return str(exc)
    if done.returncode == 0:
        return ""
    last_line = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
    return f"exit code {done.returncode}: {last_line}" + (f" ({_FIXES[name]})" if name in _FIXES else "")


_KEPT_LINES = 15


def run_streaming(
    command: Sequence[str],
    show: Callable[[str], None],
    *,
    environ: Mapping[str, str] | None = None,
    grace_s: float = 10.0,
) -> None:
    """Run `command` to its end, with `environ` on top of ours. Raises ImageFailed with the end of its output.

    Interrupted, it ends the engine first and waits for it: what the engine reads must outlive the engine.
    """
    try:
        process = subprocess.Popen(
            command,
            env={**os.environ, **(environ or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as exc:
        raise SpecError(f"{command[0]} cannot be started: {exc}") from exc
    last: deque[str] = deque(maxlen=_KEPT_LINES)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            last.append(line.rstrip())
            show(line.rstrip())
        code = process.wait()
    finally:
        _end_process(process, grace_s)
    if code:
        output = "\n".join(f"  {line}" for line in last) or "  (it said nothing)"
        raise ImageBuildFailed(
            f"{command[0]} {command[1]} ended with exit code {code}; the end of its output:\n{output}"
        )


def _end_process(process: subprocess.Popen[str], grace_s: float) -> None:
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
    if process.poll() is None:
        process.kill()
        process.wait()
    assert process.stdout is not None
    process.stdout.close()
