"""Do operator and masters keep up with many jobs? Requests per pod, memory, processor and reaction time as jobs grow.

    python benchmarks/kube_scale.py [--quick] [--json FILE] [--nodes 1000] [--jobs 100] [--workers 50]

Real: API server, scheduler, controllers, the operator (a pod) and a master (a pod) for each job. Played by kwok: the
nodes of the workers, whose pods turn Running without a process; such workers never join, so this is about pods, not
about training. Jobs are applied until there are 25 %, 50 % and 100 % of them; each figure is measured at each of these,
and what counts is whether those per pod stay what they were.

Needs the cluster of KUBECONFIG (or one it can start) with room for JOBS pods on its real nodes.
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
MB = 1e6
GROWTH = 1.2  # a figure per pod at 100 % over the same at 25 %


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
        rows = [*growing(stages), *reactions(stages), *once(stages[-1], restart, scale.delete(3))]
        table.show(f"{options.nodes} nodes, {options.workers} workers a job", rows, notes=[table.machine()])
        if options.json:
            table.write(options.json, rows)
    return 0


def growing(stages: Sequence[Stage]) -> Iterator[table.Row]:
    """Figures that must not grow: at each stage, and the last over the first."""
    figures = {
        "API requests per pod, masters": ("", [one.per_pod(MASTERS) for one in stages]),
        "API requests per pod, operator": ("", [one.per_pod(OPERATOR) for one in stages]),
        "API requests per pod, Kubernetes's own": ("", [one.per_pod(KUBERNETES) for one in stages]),
        "memory of a master, median": ("MB", [statistics.median(memory(one)) for one in stages]),
        "processor time of masters per pod": ("s", [one.masters_cpu_s / one.added for one in stages]),
        "processor time of the operator per job": ("s", [one.operator_cpu_s / one.added_jobs for one in stages]),
    }
    for measure, (unit, values) in figures.items():
        for stage, value in zip(stages, values, strict=True):
            yield table.Row(f"{measure}, {stage.jobs} jobs", unit, value, None, "")
        growth = values[-1] / values[0]
        is_ours = "Kubernetes" not in measure
        yield table.Row(
            f"{measure}, growth", "times", growth, None, "",
            f"≤ {GROWTH:g}" if is_ours else "", growth <= GROWTH if is_ours else None,
        )  # fmt: skip


def reactions(stages: Sequence[Stage]) -> Iterator[table.Row]:
    for stage in stages:
        jobs, pods = f"{stage.jobs} jobs", f"{stage.pods:,} pods"
        yield table.Row(f"all {pods} Running, {jobs}", "s", stage.running_s, None, "")
        one, many = stage.replaced_s, stage.at_once_s
        median, worst = statistics.median(one), max(one)
        yield table.Row(f"reaction time, a pod, {jobs}, median", "s", median, None, "", "≤ 1", median <= 1)
        yield table.Row(f"reaction time, a pod, {jobs}, worst of {len(one)}", "s", worst, None, "", "≤ 5", worst <= 5)
        yield table.Row(
            f"reaction time, {len(many)} pods at once, {jobs}, median", "s", statistics.median(many), None, ""
        )
        yield table.Row(f"reaction time, {len(many)} pods at once, {jobs}, worst", "s", max(many), None, "")
    for stage in stages:
        yield table.Row(
            f"memory of the operator, {stage.jobs} jobs", "MB", stage.operator.resident_bytes / MB, None, ""
        )


def once(last: Stage, restart: Restart, deleted: Sequence[float]) -> Iterator[table.Row]:
    """What was measured with all jobs there."""
    jobs = f"{last.jobs} jobs"
    yield table.Row(f"memory of a master, {jobs}, worst", "MB", max(memory(last)), None, "")
    yield table.Row(f"processor of a master that waits, {jobs}", "%", 100 * last.idle_cpu, None, "")
    for who in (MASTERS, OPERATOR):
        rate = last.idle_requests[who] / last.idle_s
        yield table.Row(f"API requests while nothing happens, {who}, {jobs}", "1/s", rate, None, "", "≤ 2", rate <= 2)
    yield table.Row("API requests refused by the server", "", float(last.refused), None, "", "0", not last.refused)
    yield table.Row(f"operator killed: a new job has its master, {jobs}", "s", restart.back_s, None, "")
    yield table.Row("operator killed: its requests per job", "", restart.requests / last.jobs, None, "")
    yield table.Row("operator killed: pods touched", "", float(restart.touched), None, "", "0", not restart.touched)
    yield table.Row("a deleted job: nothing left, median", "s", statistics.median(deleted), None, "")
    yield table.Row("a deleted job: nothing left, worst", "s", max(deleted), None, "")


def memory(stage: Stage) -> list[float]:
    return [one.resident_bytes / MB for one in stage.masters]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
