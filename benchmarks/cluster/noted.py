"""What the processes of pods wrote down: their steps and their marks, by pod. A directory for each pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, order=True)
class Step:
    at: float  # seconds of the monotonic clock
    number: int
    process: str


Steps = Mapping[str, list[Step]]  # by pod, oldest first


def steps(place: Path) -> dict[str, list[Step]]:
    """The whole lines of every file; a line being written is not there yet."""
    found = {}
    for pod in place.iterdir():
        lines = [(path.stem, line.split()) for path in pod.glob("*.steps") for line in _lines(path)]
        found[pod.name] = sorted(Step(int(at) / 1e9, int(number), process) for process, (at, number) in lines)
    return found


def mark(place: Path, pod: str, word: str, *, after: float) -> float | None:
    """When a process of the pod first noted a word after an instant; None: never."""
    lines = [line.split(maxsplit=1) for path in (place / pod).glob("*.marks") for line in _lines(path)]
    times = [int(at) / 1e9 for at, said in lines if said.decode() == word and int(at) / 1e9 > after]
    return min(times, default=None)


def first(found: Steps, pods: Iterable[str], *, after: float) -> tuple[str, Step] | None:
    """The first step that any of the pods finished after an instant, and which one did."""
    firsts = {pod: next((step for step in found.get(pod, ()) if step.at > after), None) for pod in pods}
    known = [(step, pod) for pod, step in firsts.items() if step is not None]
    return (min(known)[1], min(known)[0]) if known else None


def first_without(found: Steps, survivors: Iterable[str], victim: str, *, after: float) -> Step | None:
    """The survivors' first step in which the victim had no part: beyond its last one, or of a process begun anew."""
    survivors = list(survivors)
    last = max((step.number for step in found.get(victim, ())), default=-1)
    old = {(pod, step.process) for pod in survivors for step in found.get(pod, ()) if step.at <= after}
    later = [
        step
        for pod in survivors
        for step in found.get(pod, ())
        if step.at > after and (step.number > last or (pod, step.process) not in old)
    ]
    return min(later, default=None)


def longest_gap_s(found: Steps, pods: Iterable[str], *, start: float, stop: float) -> float:
    """The longest time in which none of the pods finished a step, beginning with the last step before `start`."""
    times = sorted(step.at for pod in pods for step in found.get(pod, ()) if step.at <= stop)
    begun = max((at for at in times if at <= start), default=start)
    window = [at for at in times if at > begun]
    return max(after - before for before, after in zip([begun, *window], [*window, stop], strict=True))


def _lines(path: Path) -> list[bytes]:
    *lines, _ = path.read_bytes().split(b"\n")
    return lines
