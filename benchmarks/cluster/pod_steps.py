"""Reads the steps and the startup marks that the processes of pods write to files, in a directory for each pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, order=True)
class Step:
    ended_at: float  # seconds of the monotonic clock
    number: int
    process: str


Steps = Mapping[str, list[Step]]  # by pod, oldest first


def read_steps(directory: Path) -> dict[str, list[Step]]:
    """Reads the complete lines of every file; a line that is being written does not count yet."""
    steps_by_pod = {}
    for pod in directory.iterdir():
        lines = [(path.stem, line.split()) for path in pod.glob("*.steps") for line in _complete_lines(path)]
        steps_by_pod[pod.name] = sorted(Step(int(at) / 1e9, int(number), process) for process, (at, number) in lines)
    return steps_by_pod


def find_mark(directory: Path, pod: str, word: str, *, after: float) -> float | None:
    """Returns when a process of the pod first wrote a mark after an instant; None if it has not."""
    lines = [line.split(maxsplit=1) for path in (directory / pod).glob("*.marks") for line in _complete_lines(path)]
    times = [int(at) / 1e9 for at, text in lines if text.decode() == word and int(at) / 1e9 > after]
    return min(times, default=None)


def first_step(steps_by_pod: Steps, pods: Iterable[str], *, after: float) -> tuple[str, Step] | None:
    """Returns the pod that was the first to finish a step after an instant, and this step."""
    first_by_pod = {
        pod: next((step for step in steps_by_pod.get(pod, ()) if step.ended_at > after), None) for pod in pods
    }
    candidates = [(step, pod) for pod, step in first_by_pod.items() if step is not None]
    return (min(candidates)[1], min(candidates)[0]) if candidates else None


def first_step_without(steps_by_pod: Steps, survivors: Iterable[str], victim: str, *, after: float) -> Step | None:
    """Returns the survivors' first step without the victim: beyond its last one, or of a process that started later."""
    survivors = list(survivors)
    last_step_of_victim = max((step.number for step in steps_by_pod.get(victim, ())), default=-1)
    earlier_processes = {
        (pod, step.process) for pod in survivors for step in steps_by_pod.get(pod, ()) if step.ended_at <= after
    }
    later = [
        step
        for pod in survivors
        for step in steps_by_pod.get(pod, ())
        if step.ended_at > after and (step.number > last_step_of_victim or (pod, step.process) not in earlier_processes)
    ]
    return min(later, default=None)


def longest_gap_s(steps_by_pod: Steps, pods: Iterable[str], *, start: float, stop: float) -> float:
    """Returns the longest time in which none of the pods finished a step, from the last step before `start` on."""
    times = sorted(step.ended_at for pod in pods for step in steps_by_pod.get(pod, ()) if step.ended_at <= stop)
    last_before = max((at for at in times if at <= start), default=start)
    later = [at for at in times if at > last_before]
    return max(after - before for before, after in zip([last_before, *later], [*later, stop], strict=True))


def _complete_lines(path: Path) -> list[bytes]:
    *lines, _ = path.read_bytes().split(b"\n")
    return lines
