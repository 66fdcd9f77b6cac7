"""Two jobs whose wishes exceed the cluster: gang (all or nothing) against elastic.

    python benchmarks/kube_two_jobs.py [--quick] [--json FILE] [--plot PNG]

On the cluster of KUBECONFIG, or on one that is started for it. Two like jobs wish five of eight slots each; the second
is submitted some time after the first. Elastic: a job begins with what it gets and grows to its wish. Gang: the same
command, with min = max = wish, and a scheduler that lets all workers of a job go at once or none (`gang.py`); a job
that waits holds no slot. Waiting is from the command to the first step; utilisation from the first command to the end
of both jobs.
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
from experiment import Kube, SlotJob, cluster, options, slots_of
from gang import GATE, GangScheduler
from slots import Course, Watched

from elasticdl.kube.api import Api

SLOTS, WISH, RANKS = 8, 5, 15  # 15 ranks are shared evenly by 5 workers and by 3
PAUSE_S = 0.05
STEPS, LATER_S = 500, 25.0
QUICK_STEPS, QUICK_LATER_S = 160, 8.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Times are seconds from the first command."""

    begin: float
    courses: dict[str, Course]  # slots of running workers, by job
    members: Course
    submitted_s: list[float]
    waited_s: list[float]
    starting_s: list[float]  # of that, from the first worker's container to the first step: not the scheduler's doing
    ended_s: list[float]
    is_exact: bool

    @property
    def end(self) -> float:
        return self.begin + max(self.ended_s)

    def utilisation(self, course: Course) -> float:
        return 100 * course.mean(self.begin, self.end) / SLOTS

    @property
    def running(self) -> Course:
        first, second = self.courses.values()
        return first + second


def main(arguments: Sequence[str]) -> int:
    chosen = options(__doc__ or "", "kubernetes-two-jobs.png").parse_args(arguments)
    steps, later_s = (QUICK_STEPS, QUICK_LATER_S) if chosen.quick else (STEPS, LATER_S)
    with cluster() as kube, tempfile.TemporaryDirectory() as place, Api.connect() as api:
        if slots_of(kube) != SLOTS:
            sys.exit(f"this experiment is of {SLOTS} slots; the cluster has {slots_of(kube)}")
        outcomes = {how: run(kube, api, Path(place), how, steps, later_s) for how in ("gang", "elastic")}
    shown = rows(outcomes["elastic"], outcomes["gang"])
    table.show(f"Two jobs that wish {WISH} of {SLOTS} slots each", shown, notes=[table.machine()])
    slot_plot.two_jobs(chosen.plot, outcomes, SLOTS, WISH)
    if chosen.json:
        table.write(chosen.json, shown)
    return 0


def run(kube: Kube, api: Api, place: Path, how: str, steps: int, later_s: float) -> Outcome:
    """Both jobs to their end."""
    is_gang = how == "gang"
    jobs = [SlotJob(kube, f"{how}-{number}", place) for number in (1, 2)]
    submitted: list[float] = []
    scheduler = GangScheduler(api, jobs[0].namespace, SLOTS, WISH) if is_gang else nullcontext()
    try:
        with Watched(api, jobs[0].namespace, [job.name for job in jobs]) as watched, scheduler:
            for job in jobs:
                job.gate = GATE if is_gang else ""
                submitted.append(time.monotonic())
                job.begin(WISH, least=WISH if is_gang else 1, steps=steps, ranks=RANKS, pause_s=PAUSE_S)
                time.sleep(max(0.0, submitted[0] + later_s - time.monotonic()))  # the second comes later
            is_exact = all([job.is_exact() for job in jobs])
            said = [watched.said[job.name] for job in jobs]
            jobs[-1].wait(lambda: all(one.ended_at for one in said), "both ends")
    finally:
        for job in jobs:
            job.remove()
    begin = submitted[0]
    first, second = (watched.members(job.name) for job in jobs)
    return Outcome(
        begin,
        {job.name: watched.running(job.name) for job in jobs},
        first + second,
        [at - begin for at in submitted],
        [(one.first_step_at or one.ended_at or at) - at for one, at in zip(said, submitted, strict=True)],
        [
            (one.first_step_at or begin) - min(trace.running_at for trace in watched.of(job.name) if trace.running_at)
            for one, job in zip(said, jobs, strict=True)
        ],
        [(one.ended_at or begin) - begin for one in said],
        is_exact,
    )


def rows(ours: Outcome, gang: Outcome) -> list[table.Row]:
    def row(measure: str, unit: str, mine: float, theirs: float, goal: str = "", met: bool | None = None) -> table.Row:
        return table.Row(measure, unit, mine, theirs, "gang", goal, met)

    first, second = ours.waited_s[1], gang.waited_s[1]
    exact = ("exact" if ours.is_exact else "not exact", "exact" if gang.is_exact else "not exact")
    last, theirs = max(ours.ended_s), max(gang.ended_s)
    return [
        row("waiting time of the second job", "s", first, second, "less", first < second),
        row("of that, its workers run and start", "s", ours.starting_s[1], gang.starting_s[1]),
        row("waiting time of the first job", "s", ours.waited_s[0], gang.waited_s[0]),
        row("end of the first job", "s", ours.ended_s[0], gang.ended_s[0]),
        row("end of both", "s", last, theirs, "earlier", last < theirs),
        *(
            row(f"utilisation, {what}, mean", "%", mine, theirs, "more", mine > theirs)
            for what, mine, theirs in (
                ("workers that run", ours.utilisation(ours.running), gang.utilisation(gang.running)),
                ("members only", ours.utilisation(ours.members), gang.utilisation(gang.members)),
            )
        ),
        table.Row("steps and records of all jobs", "", *exact, "gang", "exact", ours.is_exact and gang.is_exact),
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
