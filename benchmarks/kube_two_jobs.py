"""Two jobs that together want more than the cluster has: gang (all or nothing) against elastic.

    python benchmarks/kube_two_jobs.py [--quick] [--json FILE] [--plot PNG]

Runs on the cluster of KUBECONFIG, or on one that is started for it. Two equal jobs want five of eight slots each; the
second is submitted some time after the first. An elastic job begins with the slots it gets and grows to five workers.
A gang job is the same command with min = max = 5 and a scheduler that admits all workers of a job at once or none
(`gang.py`); a job that waits holds no slot. Waiting is from the command to the first step; utilisation from the first
command to the end of both jobs.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import slot_plot
import table
from experiment import Kube, SlotJob, argument_parser, cluster, count_slots
from gang import GATE, GangScheduler
from slot_usage import SlotWatcher, StepFunction

from elasticdl.kube.api import Api

SLOTS, REPLICAS, RANKS = 8, 5, 15  # 15 ranks are shared evenly by 5 workers and by 3
PAUSE_S = 0.05
STEPS, SECOND_AFTER_S = 500, 25.0
QUICK_STEPS, QUICK_SECOND_AFTER_S = 160, 8.0


@dataclass(frozen=True, slots=True)
class TwoJobsOutcome:
    """What both jobs did; times are seconds from the first command."""

    begin: float
    usages: dict[str, StepFunction]  # slots of running workers, by job
    members: StepFunction
    submitted_s: list[float]
    waited_s: list[float]
    starting_s: list[float]  # of that, from the first worker's container to the first step: not due to the scheduler
    ended_s: list[float]
    is_exact: bool

    @property
    def end(self) -> float:
        return self.begin + max(self.ended_s)

    def utilisation(self, usage: StepFunction) -> float:
        return 100 * usage.mean(self.begin, self.end) / SLOTS

    @property
    def running(self) -> StepFunction:
        first, second = self.usages.values()
        return first + second


def main(argv: Sequence[str]) -> int:
    arguments = argument_parser(__doc__ or "", "kubernetes-two-jobs.png").parse_args(argv)
    steps, second_after_s = (QUICK_STEPS, QUICK_SECOND_AFTER_S) if arguments.quick else (STEPS, SECOND_AFTER_S)
    with cluster() as kube, tempfile.TemporaryDirectory() as directory, Api.connect() as api:
        if count_slots(kube) != SLOTS:
            sys.exit(f"this experiment needs {SLOTS} slots; the cluster has {count_slots(kube)}")
        outcomes = {
            scheduling: run(kube, api, Path(directory), scheduling, steps, second_after_s)
            for scheduling in ("gang", "elastic")
        }
    rows = build_rows(outcomes["elastic"], outcomes["gang"])
    table.show(f"Two jobs that want {REPLICAS} of {SLOTS} slots each", rows, notes=[table.machine()])
    slot_plot.draw_two_jobs(arguments.plot, outcomes, SLOTS, REPLICAS)
    if arguments.json:
        table.write(arguments.json, rows)
    return 0


def run(kube: Kube, api: Api, directory: Path, scheduling: str, steps: int, second_after_s: float) -> TwoJobsOutcome:
    """Runs both jobs to their end."""
    is_gang = scheduling == "gang"
    jobs = [SlotJob(kube, f"{scheduling}-{number}", directory) for number in (1, 2)]
    submitted_times: list[float] = []
    scheduler = GangScheduler(api, jobs[0].namespace, SLOTS, REPLICAS) if is_gang else nullcontext()
    try:
        with SlotWatcher(api, jobs[0].namespace, [job.name for job in jobs]) as watcher, scheduler:
            for job in jobs:
                job.gate = GATE if is_gang else ""
                submitted_times.append(time.monotonic())
                job.begin(REPLICAS, min_workers=REPLICAS if is_gang else 1, steps=steps, ranks=RANKS, pause_s=PAUSE_S)
                time.sleep(max(0.0, submitted_times[0] + second_after_s - time.monotonic()))  # the second comes later
            is_exact = all([job.is_exact() for job in jobs])
            traces = [watcher.jobs[job.name] for job in jobs]
            jobs[-1].wait(lambda: all(trace.ended_at for trace in traces), "both ends")
    finally:
        for job in jobs:
            job.remove()
    begin = submitted_times[0]
    first, second = (watcher.members(job.name) for job in jobs)
    return TwoJobsOutcome(
        begin,
        {job.name: watcher.running(job.name) for job in jobs},
        first + second,
        [submitted_at - begin for submitted_at in submitted_times],
        [
            (trace.first_step_at or trace.ended_at or submitted_at) - submitted_at
            for trace, submitted_at in zip(traces, submitted_times, strict=True)
        ],
        [
            (trace.first_step_at or begin) - min(pod.running_at for pod in watcher.pods_of(job.name) if pod.running_at)
            for trace, job in zip(traces, jobs, strict=True)
        ],
        [(trace.ended_at or begin) - begin for trace in traces],
        is_exact,
    )


def build_rows(ours: TwoJobsOutcome, gang: TwoJobsOutcome) -> list[table.Row]:
    def compare(
        measure: str, unit: str, mine: float, theirs: float, goal: str = "", met: bool | None = None
    ) -> table.Row:
        return table.Row(measure, unit, mine, theirs, "gang", goal, met)

    waited_s, gang_waited_s = ours.waited_s[1], gang.waited_s[1]
    exact = ("exact" if ours.is_exact else "not exact", "exact" if gang.is_exact else "not exact")
    last, theirs = max(ours.ended_s), max(gang.ended_s)
    return [
        compare("waiting time of the second job", "s", waited_s, gang_waited_s, "less", waited_s < gang_waited_s),
        compare("of that, its workers run and start", "s", ours.starting_s[1], gang.starting_s[1]),
        compare("waiting time of the first job", "s", ours.waited_s[0], gang.waited_s[0]),
        compare("end of the first job", "s", ours.ended_s[0], gang.ended_s[0]),
        compare("end of both", "s", last, theirs, "earlier", last < theirs),
        *(
            compare(f"utilisation, {scope}, mean", "%", mine, theirs, "more", mine > theirs)
            for scope, mine, theirs in (
                ("workers that run", ours.utilisation(ours.running), gang.utilisation(gang.running)),
                ("members only", ours.utilisation(ours.members), gang.utilisation(gang.members)),
            )
        ),
        table.Row("steps and records of all jobs", "", *exact, "gang", "exact", ours.is_exact and gang.is_exact),
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
