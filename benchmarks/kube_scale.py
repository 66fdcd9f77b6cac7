"""Whether operator and masters keep up with many jobs: requests per pod, memory, processor and reaction time.

    python benchmarks/kube_scale.py [--quick] [--json FILE] [--nodes 1000] [--jobs 100] [--workers 50]

API server, scheduler, controllers, the operator (a pod) and a master (a pod) for each job are real. kwok simulates the
nodes of the workers, whose pods become Running without a process; such workers never join, so this measures pods and
not training. Jobs are applied until there are 25 %, 50 % and 100 % of them. Each figure is measured at each of these
stages, and the goal is that the figures per pod do not grow.

It runs on the cluster of KUBECONFIG (or on one that it starts) with room for JOBS pods on its real nodes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import table

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.cluster.api_load import KUBERNETES, MASTERS, OPERATOR
from tests.cluster.kube import running
from tests.cluster.scale import Measures, Restart, Scale, Stage

SHARES = (0.25, 0.5, 1.0)
QUICK = Measures(single=3, at_once=8, idle_s=5.0)
MEGABYTE = 1e6
GROWTH_GOAL = 1.2  # at most: a figure per pod at 100 % over the same at 25 %


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="4 jobs of 10 workers on 20 nodes")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--workers", type=int, default=50)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    if options.quick:
        options.nodes, options.jobs, options.workers = 20, 4, 10
    with ExitStack() as stack:
        kube = stack.enter_context(running())
        scale = Scale(kube, stack, options.nodes, options.workers, QUICK if options.quick else Measures())
        stages = [scale.grow(max(1, round(options.jobs * share))) for share in SHARES]
        restart = scale.restart_operator()
        rows = [
            *rows_of_growth(stages),
            *rows_of_reactions(stages),
            *rows_of_last_stage(stages[-1], restart, scale.delete(3)),
        ]
        table.show(f"{options.nodes} nodes, {options.workers} workers a job", rows, notes=[table.machine()])
        if options.json:
            table.write(options.json, rows)
    return 0


def rows_of_growth(stages: Sequence[Stage]) -> Iterator[table.Row]:
    """Yields the figures that must not grow: at each stage, and the last over the first."""
    figures = {
        "API requests per pod, masters": ("", [stage.per_pod(MASTERS) for stage in stages]),
        "API requests per pod, operator": ("", [stage.per_pod(OPERATOR) for stage in stages]),
        "API requests per pod, Kubernetes's own": ("", [stage.per_pod(KUBERNETES) for stage in stages]),
        "memory of a master, median": ("MB", [statistics.median(memory_of_masters(stage)) for stage in stages]),
        "processor time of masters per pod": ("s", [stage.masters_cpu_s / stage.added for stage in stages]),
        "processor time of the operator per job": ("s", [stage.operator_cpu_s / stage.added_jobs for stage in stages]),
    }
    for measure, (unit, values) in figures.items():
        for stage, value in zip(stages, values, strict=True):
            yield table.Row(f"{measure}, {stage.jobs} jobs", unit, value, None, "")
        growth = values[-1] / values[0]
        is_ours = "Kubernetes" not in measure
        yield table.Row(
            f"{measure}, growth", "times", growth, None, "",
            f"≤ {GROWTH_GOAL:g}" if is_ours else "", growth <= GROWTH_GOAL if is_ours else None,
        )  # fmt: skip


def rows_of_reactions(stages: Sequence[Stage]) -> Iterator[table.Row]:
    for stage in stages:
        jobs, pods = f"{stage.jobs} jobs", f"{stage.pods:,} pods"
        yield table.Row(f"all {pods} Running, {jobs}", "s", stage.running_s, None, "")
        single_s, at_once_s = stage.replaced_s, stage.at_once_s
        median, worst = statistics.median(single_s), max(single_s)
        yield table.Row(f"reaction time, a pod, {jobs}, median", "s", median, None, "", "≤ 1", median <= 1)
        yield table.Row(
            f"reaction time, a pod, {jobs}, worst of {len(single_s)}", "s", worst, None, "", "≤ 5", worst <= 5
        )
        yield table.Row(
            f"reaction time, {len(at_once_s)} pods at once, {jobs}, median", "s", statistics.median(at_once_s), None, ""
        )
        yield table.Row(f"reaction time, {len(at_once_s)} pods at once, {jobs}, worst", "s", max(at_once_s), None, "")
    for stage in stages:
        yield table.Row(
            f"memory of the operator, {stage.jobs} jobs", "MB", stage.operator.resident_bytes / MEGABYTE, None, ""
        )


def rows_of_last_stage(last_stage: Stage, restart: Restart, deletion_s: Sequence[float]) -> Iterator[table.Row]:
    """Yields the figures that were measured with all jobs running."""
    jobs = f"{last_stage.jobs} jobs"
    yield table.Row(f"memory of a master, {jobs}, worst", "MB", max(memory_of_masters(last_stage)), None, "")
    yield table.Row(f"processor of a master that waits, {jobs}", "%", 100 * last_stage.idle_cpu, None, "")
    for user in (MASTERS, OPERATOR):
        rate = last_stage.idle_requests[user] / last_stage.idle_s
        yield table.Row(f"API requests while nothing happens, {user}, {jobs}", "1/s", rate, None, "", "≤ 2", rate <= 2)
    yield table.Row(
        "API requests refused by the server", "", float(last_stage.refused), None, "", "0", not last_stage.refused
    )
    yield table.Row(f"operator killed: a new job has its master, {jobs}", "s", restart.back_s, None, "")
    yield table.Row("operator killed: its requests per job", "", restart.requests / last_stage.jobs, None, "")
    yield table.Row("operator killed: pods touched", "", float(restart.touched), None, "", "0", not restart.touched)
    yield table.Row("a deleted job: nothing left, median", "s", statistics.median(deletion_s), None, "")
    yield table.Row("a deleted job: nothing left, worst", "s", max(deletion_s), None, "")


def memory_of_masters(stage: Stage) -> list[float]:
    return [master.resident_bytes / MEGABYTE for master in stage.masters]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
