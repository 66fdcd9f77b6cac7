"""Compares our policy with published ones on the workloads of Pollux's evaluation, and measures decision times.

    python benchmarks/schedulers.py [--quick] [--json FILE] [--data DIR] [--processes N]

There are four workloads of 160 jobs on 16 nodes with 4 GPUs. Every start and change costs the peers 30 s, as in their
authors' evaluation; our policy runs with the same cost, and with the cost measured on Kubernetes (`kube_times.py`). The
simulator is validated first: Pollux, Optimus+Oracle and Tiresias must reach the means of their authors' simulator. All
other policies run on the first workload. Times are processor seconds of one core. `--quick` runs workload 3 and a tenth
of the Philly trace.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # fits are tiny

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from large_snapshot import large_snapshot, time_decisions
from table import Row, machine, show, write

from elasticdl.scheduler.policies import POLICY_REGISTRY
from elasticdl.scheduler.snapshot import NodeInfo
from elasticdl.sim.engine import SimulationConfig
from elasticdl.sim.interface import ChangeCost
from elasticdl.sim.results.outcome import SimulationOutcome
from elasticdl.sim.runner import simulate
from elasticdl.sim.traces.source import open_trace

DATA = Path(__file__).parents[2] / "shared" / "data" / "sched"
WORKLOADS = (1, 2, 3, 4)
PUBLISHED = {  # mean JCT in seconds in the authors' simulator
    "pollux": (2088.8, 3322.9, 2188.5, 2721.0),
    "optimus-oracle": (4087.1, 6913.9, 3944.0, 5967.8),
    "tiresias": (2473.7, 5145.0, 3876.3, 3280.3),
}
WITHIN = {"pollux": 0.08, "optimus-oracle": 0.05, "tiresias": 0.05}
PEER_COST = ChangeCost.uniform(30.0)
# Medians of kube_times.py: apply to first step, preempted to next step, free capacity to the new worker's first step.
MEASURED_COST = ChangeCost(start_s=5.90, change_s=0.263, join_s=3.44)
INTERVAL_S = 60.0  # for the peers
Key = tuple[str, int, ChangeCost]


def run(task: tuple[Key, str]) -> tuple[Key, SimulationOutcome, float]:
    (policy, _, cost), trace = task
    nodes = tuple(NodeInfo(f"node-{number:02}", 4) for number in range(16))
    interval_s = 0.0 if policy == "goodput" else INTERVAL_S
    config = SimulationConfig(nodes, cost, interval_s=interval_s)
    started_s = time.process_time()
    outcome = simulate(policy, open_trace(trace), config, lambda _: None, lambda: False)
    return task[0], outcome, time.process_time() - started_s


def simulate_workloads(
    data: Path, workloads: Sequence[int], processes: int
) -> tuple[dict[Key, SimulationOutcome], dict[Key, float]]:
    """Returns the outcomes and the processor seconds of each."""
    keys: list[Key] = [(name, number, PEER_COST) for name in (*PUBLISHED, "goodput") for number in workloads]
    keys += [("goodput", number, MEASURED_COST) for number in workloads]
    keys += [(name, workloads[0], PEER_COST) for name in POLICY_REGISTRY if name not in (*PUBLISHED, "goodput")]
    keys.sort(key=lambda key: key[0] != "pollux")  # the slowest first
    tasks = [(key, str(data / "pollux-osdi21" / "workloads" / f"workload-{key[1]}.csv")) for key in keys]
    outcomes: dict[Key, SimulationOutcome] = {}
    seconds_by_key: dict[Key, float] = {}
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        for key, outcome, seconds in pool.map(run, tasks):
            outcomes[key], seconds_by_key[key] = outcome, seconds
            print(
                f"{machine()}  workload {key[1]} {key[0]:<18} change {key[2].change_s:<5g} s {format_outcome(outcome)}",
                flush=True,
            )
    return outcomes, seconds_by_key


def format_outcome(outcome: SimulationOutcome) -> str:
    numbers, timing = outcome.metrics, outcome.timing
    return (
        f"mean {numbers.mean_jct_s:7,.0f} s, p50 {numbers.p50_jct_s:6,.0f}, p90 {numbers.p90_jct_s:6,.0f}, "
        f"p99 {numbers.p99_jct_s:6,.0f}, makespan {numbers.makespan_s:7,.0f}, queueing {numbers.queueing_s:6,.0f}, "
        f"utilization {numbers.utilization:.2f}, restarts {numbers.restarts:5.1f}, "
        f"fairness {numbers.worst_fairness:5.2f} worst {numbers.mean_fairness:5.2f} mean, "
        f"policy {timing.policy_s:5.1f} s of {timing.wall_s:4.0f} s, rejected {outcome.rejected_plans}"
    )


def rows_of_published(outcomes: dict[Key, SimulationOutcome], workloads: Sequence[int]) -> Iterator[Row]:
    for name, published in PUBLISHED.items():
        for number in workloads:
            own_jct_s, peer_jct_s = outcomes[name, number, PEER_COST].metrics.mean_jct_s, published[number - 1]
            is_met = abs(own_jct_s / peer_jct_s - 1.0) <= WITHIN[name]
            goal = f"within {WITHIN[name]:.0%} of published"
            yield Row(
                f"mean JCT of {name}, workload {number}", "s", own_jct_s, peer_jct_s, "authors' simulator", goal, is_met
            )


def rows_of_comparison(outcomes: dict[Key, SimulationOutcome], workloads: Sequence[int]) -> Iterator[Row]:
    """Goals are for sums over all four workloads, in which every job counts once; fewer are not judged."""
    has_all_workloads = tuple(workloads) == tuple(WORKLOADS)
    scope = "" if has_all_workloads else " over all four"

    def judge(is_met: bool) -> bool | None:
        return is_met if has_all_workloads else None

    peer_metrics = [outcomes["pollux", number, PEER_COST].metrics for number in workloads]
    published = sum(PUBLISHED["pollux"][number - 1] for number in workloads)
    for cost, cost_name, limit in (
        (PEER_COST, "same 30 s cost", 0.9),
        (MEASURED_COST, "measured sub-second cost", 0.8),
    ):
        own_metrics = [outcomes["goodput", number, cost].metrics for number in workloads]
        mean = sum(metrics.mean_jct_s for metrics in own_metrics)
        for name, total in (
            ("Pollux, published", published),
            ("Pollux, this run", sum(metrics.mean_jct_s for metrics in peer_metrics)),
        ):
            ratio = mean / total
            yield Row(
                f"mean JCT, {cost_name}, over Pollux's",
                "ratio",
                ratio,
                1.0,
                name,
                f"≤ {limit}{scope}",
                judge(ratio <= limit),
            )
        for number, ours, theirs in zip(workloads, own_metrics, peer_metrics, strict=True):
            measure = f"mean JCT, {cost_name}, workload {number}"
            yield Row(measure, "s", ours.mean_jct_s, theirs.mean_jct_s, "Pollux, this run")
        for metric in ("p99_jct_s", "makespan_s"):
            own, peer = (
                statistics.mean(float(getattr(metrics, metric)) for metrics in group)
                for group in (own_metrics, peer_metrics)
            )
            metric_name = {"p99_jct_s": "p99 JCT", "makespan_s": "makespan"}[metric]
            measure = f"{metric_name}, {cost_name}, mean of workloads"
            yield Row(measure, "s", own, peer, "Pollux, this run", f"no worse{scope}", judge(own <= peer))
        own, peer = (max(metrics.worst_fairness for metrics in group) for group in (own_metrics, peer_metrics))
        yield Row(f"worst finish-time fairness, {cost_name}", "ratio", own, peer, "Pollux, this run", "≤ 2", own <= 2.0)


def rows_of_times(seconds_by_key: dict[Key, float], is_quick: bool) -> Iterator[Row]:
    sizes = (
        ("64 GPUs/160 jobs", (16, 4, 160, 64), 0.05),
        ("2,048 GPUs/5,000 jobs", (512, 4, 5000, 64), 1.0),
        ("16,000 nodes/100,000 tasks", (16_000, 8, 8_000, 64), 5.0),
    )
    for name, shape, limit in sizes:
        durations_s, workers = time_decisions("goodput", large_snapshot(*shape), 3 if is_quick else 5)
        median = statistics.median(durations_s)
        peer = 5.0 if limit == 5.0 else None
        policy = "Optimus, published" if peer else f"worst {max(durations_s):.3f} s, {workers:,} workers allocated"
        yield Row(f"decision for {name}", "s", median, peer, policy, f"≤ {limit:g} s on one core", median <= limit)
    for policy in ("goodput", "pollux"):
        slowest = max(seconds for key, seconds in seconds_by_key.items() if key[0] == policy)
        goal, met = ("≤ 60 s", slowest <= 60) if policy == "goodput" else ("", None)
        yield Row(f"whole 160-job workload with {policy}, slowest", "s", slowest, None, "", goal, met)


PHILLY = """
import sys
from pathlib import Path
from schedulers import simulate_philly
print(*simulate_philly(Path(sys.argv[1]), int(sys.argv[2])))
"""


def simulate_philly(data: Path, limit: int) -> tuple[int, float, float]:
    """Returns the jobs that ended, the seconds, and the peak memory of this process in MB."""
    nodes = tuple(NodeInfo(f"node-{number:03}", 8) for number in range(300))
    source = open_trace(str(data / "pollux-osdi21" / "traces" / "philly.csv"), limit=limit)
    config = SimulationConfig(nodes, PEER_COST, records_spans=False)
    outcome = simulate("elastic-first-come", source, config, lambda _: None, lambda: False)
    # Not ru_maxrss, which includes the memory of the parent process before exec.
    (peak_memory,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return outcome.metrics.jobs, outcome.timing.wall_s, int(peak_memory.split()[1]) / 1e3


def rows_of_philly(data: Path, is_quick: bool) -> Iterator[Row]:
    memory = []
    for limit in (2_000, 8_000) if is_quick else (20_000, 0):
        argv = [sys.executable, "-c", PHILLY, str(data), str(limit)]
        environ = os.environ | {"PYTHONPATH": f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}"}
        finished = subprocess.run(argv, check=True, capture_output=True, text=True, env=environ)
        jobs, seconds, megabytes = (float(value) for value in finished.stdout.split())
        memory.append(megabytes)
        measure = f"{jobs:,.0f} jobs of the Philly trace with elastic-first-come"
        yield Row(measure, "s", seconds, None, "", "minutes", seconds < 900)
        yield Row(f"memory for {jobs:,.0f} jobs of the Philly trace", "MB", megabytes, None, "")
    growth = memory[1] / memory[0]
    yield Row("memory, whole trace over its first part", "ratio", growth, None, "", "flat: ≤ 1.5", growth <= 1.5)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--data", type=Path, default=DATA, help="directory with pollux-osdi21")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    if not (options.data / "pollux-osdi21").is_dir():
        parser.error(f"no pollux-osdi21 in {options.data}: give --data a directory with the artifact's workloads")
    workloads = WORKLOADS[2:3] if options.quick else WORKLOADS
    rows: list[Row] = []
    outcomes, seconds_by_key = simulate_workloads(options.data, workloads, options.processes)
    rows += rows_of_published(outcomes, workloads)
    rows += rows_of_comparison(outcomes, workloads)
    rows += rows_of_times(seconds_by_key, options.quick)
    rows += rows_of_philly(options.data, options.quick)
    first = workloads[0]
    base = outcomes["pollux", first, PEER_COST].metrics.mean_jct_s
    for name in sorted(POLICY_REGISTRY, key=lambda name: outcomes[name, first, PEER_COST].metrics.mean_jct_s):
        mean = outcomes[name, first, PEER_COST].metrics.mean_jct_s
        rows.append(Row(f"side by side, workload {first}: mean JCT of {name}", "s", mean, base, "Pollux, this run"))
    show("Schedulers on Pollux's workloads, 64 GPUs", rows, notes=[machine()])
    if options.json:
        write(options.json, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
