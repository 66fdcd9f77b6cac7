"""What a change of membership costs: the longest time in which no step is finished, beside that of peers.

    python benchmarks/rescale.py [--quick] [--repeats N] [--json FILE]

Every repetition starts a job, waits until it runs steadily, injects one event and watches the steps of all workers. The
table shows the longest gap beyond one ordinary step. The systems take turns.
"""

from __future__ import annotations

import argparse
import math
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import netns
import table
from peers import environment, steps
from peers.elasticdl_job import ElasticDL
from peers.job import Job, Setting, System
from peers.torchft_job import Torchft
from peers.torchrun_job import Torchrun

STEADY_S = 3.0  # the job runs undisturbed for so long before, and all workers do steps for so long after
STEADY_STEPS = 3  # per worker in each half of that time
EFFECT_S = 6.0  # by then the injected event has had its effect, or steps have stopped
START_S = 180.0
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    before: int  # workers
    after: int  # workers that train again in the end, at least
    goal_s: float
    inject: Callable[[Job], int | None]  # the pid of a worker whose steps no longer count, if any
    max_workers: int = 4
    needs_network: bool = False


CONTROL = Scenario("nothing", 3, 3, math.inf, lambda job: None)
SCENARIOS = (
    CONTROL,
    Scenario("join", 2, 3, 0.05, lambda job: job.join()),
    Scenario("graceful leave", 3, 2, 0.05, lambda job: job.leave()),
    Scenario("SIGKILL of a worker", 3, 2, 0.2, lambda job: job.kill()),
    Scenario("SIGKILL of a worker, 8 workers", 8, 7, 0.3, lambda job: job.kill(), max_workers=8),
    Scenario("silent loss", 3, 2, 1.5, lambda job: job.silence(), needs_network=True),
    # The goal is no gap: not more than when nothing happens.
    Scenario("SIGKILL of the master", 3, 3, 0.0, lambda job: job.kill_coordinator()),
)


class NotSteadyError(Exception):
    """The job did not become steady, so nothing could be injected."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds with no finished step beyond an ordinary one; infinite if no step followed."""

    gap_s: float
    step_s: float


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one repetition")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", action="append", metavar="WORD", help="scenarios whose name has this word")
    parser.add_argument("--systems", default="elasticdl,torchrun,torchft")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds to wait for a job to go on")
    parser.add_argument("--venv", type=Path, default=environment.DEFAULT, help="environment for torchft")
    parser.add_argument("--keep", type=Path, help="keep logs and step files of every repetition here")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that jobs end with this process
    repeats = 1 if options.quick else options.repeats
    systems = [_create_system(name, options.venv) for name in options.systems.split(",")]
    scenarios = [
        scenario for scenario in SCENARIOS if not options.only or any(word in scenario.name for word in options.only)
    ]

    notes = [table.machine()]
    if (missing := netns.missing_requirement()) is not None:
        notes.append(f"silent loss skipped: {missing}")
        scenarios = [scenario for scenario in scenarios if not scenario.needs_network]
    costs: dict[tuple[str, str], list[Cost]] = {}
    for scenario in scenarios:
        # The goals of others depend on the control: repeat it more often, so that its worst is not a matter of luck.
        count = repeats * 3 if scenario is CONTROL else repeats
        for repeat in range(count):
            for system in systems:
                earlier_costs = costs.get((scenario.name, system.name), [])
                if scenario is CONTROL and system.name != "elasticdl":
                    continue  # only our own gaps are judged against it
                if earlier_costs and earlier_costs[-1].gap_s == math.inf:
                    continue  # it does not continue: another repetition would wait in vain
                progress = f"{scenario.name:30} {repeat + 1}/{count} {system.name:15}"
                try:
                    cost = _run_repetition(system, scenario, options.limit, options.keep)
                except NotSteadyError as exc:
                    notes.append(f"{progress}: left out, {exc}")
                    _print_progress(notes[-1])
                    continue
                costs.setdefault((scenario.name, system.name), []).append(cost)
                _print_progress(f"{progress} {_seconds(cost.gap_s)} (a step {cost.step_s:.3f} s)")
    notes.append(table.machine())
    title = f"Longest time with no finished step, beyond an ordinary one ({repeats} repetitions)"
    rows = _rows(scenarios, systems, costs, options.limit)
    table.show(title, rows, notes=notes)
    if options.json:
        table.write(options.json, rows)
    return 0


def _create_system(name: str, venv: Path) -> System:
    match name:
        case "elasticdl":
            return ElasticDL()
        case "torchrun":
            return Torchrun()
        case "torchrun-tuned":
            return Torchrun("torchrun-tuned", "last_call_timeout=1")
        case "torchft":
            return Torchft(environment.torchft(venv))
    raise SystemExit(f"--systems: expected elasticdl, torchrun, torchrun-tuned, torchft. Received: {name}")


def _run_repetition(system: System, scenario: Scenario, limit_s: float, keep: Path | None) -> Cost:
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix=f"{system.name}-{scenario.name.replace(' ', '-')}-", dir=keep))
        if keep is None:
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
        network = stack.enter_context(netns.network(scenario.before)) if scenario.needs_network else None
        setting = Setting(directory, scenario.before, scenario.max_workers, network)
        setting.steps.mkdir()
        job = system.start(setting)
        stack.callback(job.close)
        return _measure(job, scenario, setting, limit_s)


def _measure(job: Job, scenario: Scenario, setting: Setting, limit_s: float) -> Cost:
    if not _wait_until_steady(setting, scenario.before, time.monotonic() + START_S):
        raise NotSteadyError(f"the job did not run steadily within {START_S:g} s; --keep DIR keeps its logs")
    injected_at = time.monotonic()
    step_s = steps.ordinary_step_s(steps.read_steps(setting.steps), start=injected_at - STEADY_S, stop=injected_at)
    ignored_pid = scenario.inject(job)
    time.sleep(EFFECT_S)
    continues = _wait_until_steady(setting, scenario.after, injected_at + limit_s)
    step_times = steps.ignore_processes(
        steps.read_steps(setting.steps), [ignored_pid] if ignored_pid else [], injected_at
    )
    gap_s = steps.longest_gap_s(step_times, start=injected_at, stop=time.monotonic()) if continues else math.inf
    return Cost(max(0.0, gap_s - step_s), step_s)


def _wait_until_steady(setting: Setting, workers: int, deadline: float) -> bool:
    """Returns whether `workers` workers train steadily before the deadline."""
    started_at = time.monotonic()
    while (now := time.monotonic()) < deadline:
        step_times = steps.read_steps(setting.steps)
        if now - started_at > STEADY_S and len(_steady_processes(step_times, now)) >= workers:
            return True
        time.sleep(POLL_S)
    return False


def _steady_processes(step_times: steps.Steps, now: float) -> set[int]:
    halves = [(now - STEADY_S, now - STEADY_S / 2), (now - STEADY_S / 2, now)]
    first, second = (steps.busy_processes(step_times, start=a, stop=b, at_least=STEADY_STEPS) for a, b in halves)
    return first & second


def _rows(
    scenarios: Sequence[Scenario], systems: Sequence[System], costs: dict[tuple[str, str], list[Cost]], limit_s: float
) -> list[table.Row]:
    rows = []
    peers = [system.name for system in systems if system.name != "elasticdl"]
    for scenario in scenarios:
        for statistic, summarize in (("median", statistics.median), ("worst", max)):
            own_gap_s = _summarize(costs.get((scenario.name, "elasticdl")), summarize)
            goal, is_met = _judge(scenario, own_gap_s, costs.get((CONTROL.name, "elasticdl")))
            for peer in [""] if scenario is CONTROL else peers or ["none"]:
                peer_gap_s = _summarize(costs.get((scenario.name, peer)), summarize)
                rows.append(
                    table.Row(
                        f"{scenario.name}, {statistic}",
                        "s",
                        _cell(own_gap_s, limit_s),
                        _cell(peer_gap_s, limit_s),
                        peer,
                        goal,
                        is_met,
                    )
                )
    return rows


def _judge(scenario: Scenario, own_gap_s: float | None, control: Sequence[Cost] | None) -> tuple[str, bool | None]:
    if scenario is CONTROL:
        return "", None
    if scenario.goal_s > 0:
        return f"≤ {scenario.goal_s:g}", None if own_gap_s is None else own_gap_s <= scenario.goal_s
    if own_gap_s is None or not control:
        return "0, as nothing", None
    # A longest gap minus a median step is never exactly 0: the gap of the control, or half a step, counts as 0.
    return "0, as nothing", own_gap_s <= max(max(cost.gap_s, cost.step_s / 2) for cost in control)


def _summarize(costs: Sequence[Cost] | None, summarize: Callable[[list[float]], float]) -> float | None:
    return summarize([cost.gap_s for cost in costs]) if costs else None


def _cell(value: float | None, limit_s: float) -> float | str | None:
    return f"> {limit_s:g}" if value == math.inf else value


def _seconds(value: float) -> str:
    return "no further step" if value == math.inf else f"{value:.3f} s"


def _print_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
