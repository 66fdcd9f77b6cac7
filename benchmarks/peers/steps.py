"""Reads the step files that every process of a benchmarked job writes; only `read_steps` does I/O."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

Steps = Mapping[int, list[float]]  # pid to the times its steps ended, in seconds of the monotonic clock


def read_steps(directory: Path) -> dict[int, list[float]]:
    """Reads the complete lines of every file; a line that is being written does not count yet."""
    times_by_pid = {}
    for path in directory.glob("*.steps"):
        *lines, _ = path.read_bytes().split(b"\n")
        times_by_pid[int(path.stem)] = [int(line.split()[0]) / 1e9 for line in lines]
    return times_by_pid


def ordinary_step_s(steps: Steps, *, start: float, stop: float) -> float:
    """Returns the median time between two steps of one process, in a span when nothing happened."""
    durations = [
        after - before
        for times in steps.values()
        for before, after in pairwise(times)
        if start <= before and after <= stop
    ]
    return statistics.median(durations)


def longest_gap_s(steps: Steps, *, start: float, stop: float) -> float:
    """Returns the longest time in which no process finished a step, from the last one before `start` on."""
    all_times = sorted(time for times in steps.values() for time in times if time <= stop)
    last_before = max((time for time in all_times if time <= start), default=start)
    window = [time for time in all_times if time >= last_before]
    return max((after - before for before, after in pairwise(window)), default=stop - last_before)


def busy_processes(steps: Steps, *, start: float, stop: float, at_least: int) -> set[int]:
    """Returns the processes that finished at least `at_least` steps in a span."""
    return {pid for pid, times in steps.items() if sum(start <= time <= stop for time in times) >= at_least}


def ignore_processes(steps: Steps, pids: Iterable[int], after: float) -> dict[int, list[float]]:
    """Returns the steps without those that the processes `pids` finished after an instant."""
    ignored = set(pids)
    return {pid: [time for time in times if pid not in ignored or time <= after] for pid, times in steps.items()}


def steps_per_s(steps: Steps, *, skip: int) -> float:
    """Returns the steps of the job per second, without the first `skip` of each process."""
    rates = []
    for times in steps.values():
        later_times = times[skip:]
        if len(later_times) > 1:
            rates.append((len(later_times) - 1) / (later_times[-1] - later_times[0]))
    return statistics.median(rates)
