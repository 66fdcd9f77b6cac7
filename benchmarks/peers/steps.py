"""Reading the step files that every process of a benchmarked job writes; pure but for `read`."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

Steps = Mapping[int, list[float]]  # pid to the times its steps ended, in seconds of the monotonic clock


def read(directory: Path) -> dict[int, list[float]]:
    """The whole lines of every file; a line being written is not there yet."""
    found = {}
    for path in directory.glob("*.steps"):
        *lines, _ = path.read_bytes().split(b"\n")
        found[int(path.stem)] = [int(line.split()[0]) / 1e9 for line in lines]
    return found


def ordinary_step_s(steps: Steps, *, start: float, stop: float) -> float:
    """The median time between two steps of one process, within a time when nothing happened."""
    durations = [
        after - before
        for times in steps.values()
        for before, after in pairwise(times)
        if start <= before and after <= stop
    ]
    return statistics.median(durations)


def longest_gap_s(steps: Steps, *, start: float, stop: float) -> float:
    """The longest time in which nobody finished a step, beginning with the last one before `start`."""
    times = sorted(time for one in steps.values() for time in one if time <= stop)
    first = max((time for time in times if time <= start), default=start)
    window = [time for time in times if time >= first]
    return max((after - before for before, after in pairwise(window)), default=stop - first)


def busy(steps: Steps, *, start: float, stop: float, at_least: int) -> set[int]:
    """The processes that finished `at_least` steps in a time."""
    return {pid for pid, times in steps.items() if sum(start <= time <= stop for time in times) >= at_least}


def without(steps: Steps, pids: Iterable[int], after: float) -> dict[int, list[float]]:
    """The same, but whatever `pids` claim to have finished after a time does not count."""
    gone = set(pids)
    return {pid: [time for time in times if pid not in gone or time <= after] for pid, times in steps.items()}


def per_second(steps: Steps, *, skip: int) -> float:
    """Steps of the job per second, without the first `skip` of each process."""
    rates = []
    for times in steps.values():
        kept = times[skip:]
        if len(kept) > 1:
            rates.append((len(kept) - 1) / (kept[-1] - kept[0]))
    return statistics.median(rates)
