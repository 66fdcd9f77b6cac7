"""The container engines docker, podman and buildah: finds one that works, builds its commands, and runs them.

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
# 1980-01-01, the oldest time a wheel can have: the same files give the same layers on any day.
EPOCH = 315532800

# Commands that fail if an engine is installed but cannot build: docker's daemon may be down.
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
    """A container engine on this machine."""

    name: str

    def build_command(
        self,
        image: str,
        *,
        dockerfile: Path,
        context: Path,
        arguments: Mapping[str, str],
        engine_options: Sequence[str] = (),
    ) -> list[str]:
        """The command that builds `image`; `engine_options` are engine_options to the engine unchanged."""
        command = [self.name, "build", "--tag", image, "--file", str(dockerfile)]
        # By default podman and buildah cache no layers and use today's time; BuildKit reads SOURCE_DATE_EPOCH.
        if self.name != "docker":
            command += ["--layers", "--timestamp", str(EPOCH)]
        for key, value in sorted({"SOURCE_DATE_EPOCH": str(EPOCH), **arguments}.items()):
            command += ["--build-arg", f"{key}={value}"]
        return [*command, *engine_options, str(context)]

    def push_command(self, image: str, engine_options: Sequence[str] = ()) -> list[str]:
        return [self.name, "push", *engine_options, image]

    def has_image(self, image: str) -> bool:
        """Whether the engine has an image of this name."""
        completed = subprocess.run(
            [self.name, *_EXISTS_COMMANDS[self.name], image], capture_output=True, stdin=subprocess.DEVNULL
        )
        return completed.returncode == 0


def find_engine(requested: str = "", timeout_s: float = 20.0) -> ContainerEngine:
    """The requested engine, or the first one that works. Raises SpecError with the problem of each."""
    problems = {}
    for name in [requested] if requested else ENGINES:
        problem = _engine_problem(name, timeout_s)
        if not problem:
            return ContainerEngine(name)
        problems[name] = problem
    details = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
    raise SpecError(
        f"no container engine to build or push with ({details}); install one, e.g. `apt-get install podman`"
    )


def _engine_problem(name: str, timeout_s: float) -> str:
    """Why an engine cannot be used; "" if it can."""
    if shutil.which(name) is None:
        return "not installed"
    try:
        completed = subprocess.run(
            [name, *_VERSION_COMMANDS[name]],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return str(exc)
    if completed.returncode == 0:
        return ""
    last_line = (completed.stderr.strip().splitlines() or ["no output"])[-1]
    return f"exit code {completed.returncode}: {last_line}" + (f" ({_FIXES[name]})" if name in _FIXES else "")


_TAIL_LINES = 15


def run_streaming(
    command: Sequence[str],
    show: Callable[[str], None],
    *,
    environ: Mapping[str, str] | None = None,
    grace_s: float = 10.0,
) -> None:
    """Run `command` to its end, with `environ` added to ours. Raises ImageBuildFailed with the end of its output.

    On an interrupt it first ends the engine and waits for it, because the caller then deletes the engine's input.
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
    last_lines: deque[str] = deque(maxlen=_TAIL_LINES)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            last_lines.append(line.rstrip())
            show(line.rstrip())
        code = process.wait()
    finally:
        _end_process(process, grace_s)
    if code:
        output = "\n".join(f"  {line}" for line in last_lines) or "  (no output)"
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
