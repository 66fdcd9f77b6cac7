"""A web service of high priority above an elastic job of low priority, on a cluster that is always full.

    python benchmarks/kube_preemption.py [--quick] [--json FILE] [--plot PNG]

On the cluster of KUBECONFIG, or on one that is started for it. Every pod of the service and every worker holds one
slot (an extended resource); the job wishes all slots of the cluster. The service follows the load of a day, in
minutes: it takes slots from workers, by Kubernetes's own preemption, and gives them back. Asked all the time: how many
slots are held by running pods, how long a pod of the service took from being created to running (and on the same
cluster when it is empty), and for the page itself, through the Service.

Two utilisations: slots of pods that run, and, stricter, slots of workers that are members of the training and of web
pods that are ready and not yet asked to end. Both weighted with time, from the first to the last hour of the day.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import slot_plot
import table
import web
from experiment import Kube, SlotJob, cluster, options, slots_of
from slots import Course, Trace, Watched

from elasticdl.kube.api import Api

# Web pods, hour by hour; each hour lasts HOUR_S.
DAY, HOUR_S = (1, 2, 3, 5, 6, 5, 4, 6, 4, 3, 2, 1), 20.0
QUICK_DAY, QUICK_HOUR_S = (1, 4, 6, 3, 1), 14.0
PAUSE_S = 0.05
WINDOW_S = 15.0
GOAL = 0.9
PROMPT_S = 3.0  # more than on empty nodes, at most
GROWN_S = 30.0  # the web pods that go, new workers, Python and torch, several at once


@dataclass(frozen=True, slots=True)
class Outcome:
    watched: Watched
    job: str
    begin: float
    end: float
    slots: int
    empty_s: list[float]  # from created to running, without training
    full_s: list[tuple[float, float]]  # the same above it, and when it was created
    grown_s: float  # from the last hour of the day until the job had all that was left
    is_exact: bool
    visitor: web.Visitor

    @property
    def running(self) -> Course:
        return self.watched.running(self.job, web.NAME)

    @property
    def strict(self) -> Course:
        return self.watched.members(self.job) + self.watched.serving(web.NAME)


def main(arguments: Sequence[str]) -> int:
    chosen = options(__doc__ or "", "kubernetes-preemption.png").parse_args(arguments)
    served_by = web.ensure_nginx()
    day, hour_s = (QUICK_DAY, QUICK_HOUR_S) if chosen.quick else (DAY, HOUR_S)
    with cluster() as kube, tempfile.TemporaryDirectory() as place, Api.connect() as api:
        job = SlotJob(kube, "night-shift", Path(place))
        try:
            with Watched(api, job.namespace, [job.name]) as watched:
                outcome = live(kube, job, watched, day, hour_s)
        finally:
            web.remove(kube)
            job.remove()
    shown = rows(outcome)
    notes = [f"the page: {served_by}; {len(outcome.visitor.served)} pods served it", *outcome.visitor.failures[:10]]
    table.show("A web service above an elastic job", shown, notes=[*notes, table.machine()])
    title = f"a day of {len(day)} hours of {hour_s:g} s on {outcome.slots} slots"
    slot_plot.preemption(chosen.plot, outcome, web.NAME, title, GOAL)
    if chosen.json:
        table.write(chosen.json, shown)
    return 0


def live(kube: Kube, job: SlotJob, watched: Watched, day: Sequence[int], hour_s: float) -> Outcome:
    """The day, once on empty nodes in a hurry, then above the job."""
    slots = slots_of(kube)
    kube.kubectl("apply", "--filename", "-", text=web.documents())
    for count in (*day, 0):
        follow(kube, watched, count)
    empty = [waited(trace) for trace in watched.of(web.NAME)]
    seen = {trace.name for trace in watched.of(web.NAME)}

    follow(kube, watched, day[0])
    pace = [hour_s / (PAUSE_S * -(-slots // (slots - count))) for count in day]
    job.begin(slots, least=1, steps=int(sum(pace)), ranks=slots, pause_s=PAUSE_S, priority="low")
    job.wait_members(slots - day[0], step=1)
    with web.Visitor(web.address(kube)) as visitor:
        begin = time.monotonic()
        for hour, count in enumerate(day, 1):
            last = time.monotonic()
            follow(kube, watched, count)
            if hour < len(day):
                time.sleep(max(0.0, begin + hour * hour_s - time.monotonic()))  # until the hour is over
        job.wait_members(slots - day[-1])
        grown_s = time.monotonic() - last
        time.sleep(max(0.0, begin + len(day) * hour_s - time.monotonic()))
        end = time.monotonic()
    job.hurry()
    full = [(trace.created_at, waited(trace)) for trace in watched.of(web.NAME) if trace.name not in seen]
    is_exact = job.is_exact()
    return Outcome(watched, job.name, begin, end, slots, empty, full[day[0] :], grown_s, is_exact, visitor)


def follow(kube: Kube, watched: Watched, count: int) -> None:
    """Scale the service, and wait until it is so."""
    web.scale(kube, count)
    deadline = time.monotonic() + 60.0
    while True:
        traces = [trace for trace in watched.of(web.NAME) if trace.leaving_at is None and trace.ended_at is None]
        if len(traces) == count and all(trace.ready_at is not None for trace in traces):
            break
        if time.monotonic() > deadline:
            raise TimeoutError(f"{count} web pods are not ready: {traces}")
        time.sleep(0.05)


def waited(trace: Trace) -> float:
    return (trace.running_at or trace.ended_at or trace.created_at) - trace.created_at


def rows(outcome: Outcome) -> list[table.Row]:
    begin, end, slots = outcome.begin, outcome.end, outcome.slots
    alone = 100 * outcome.watched.running(web.NAME).mean(begin, end) / slots
    found = []
    for what, course, goal in (
        ("pods that run", outcome.running, f"> {GOAL:.0%}"),
        ("members and ready web pods only", outcome.strict, ""),
    ):
        mean, worst = (100 * value / slots for value in (course.mean(begin, end), course.worst(begin, end, WINDOW_S)))
        measure = f"utilisation of the scarce resource, {what}"
        met = mean > 100 * GOAL if goal else None
        found.append(table.Row(f"{measure}, mean", "%", mean, alone, "the service alone", goal, met))
        found.append(table.Row(f"{measure}, worst {WINDOW_S:g} s", "%", worst, None, ""))
    empty, full = outcome.empty_s, [wait for _, wait in outcome.full_s]
    for which, choose in (("median", statistics.median), ("worst", max)):
        ours, theirs = choose(full), choose(empty)
        goal = f"nginx never waits for training: ≤ {PROMPT_S:g} s more"
        measure = f"web pod from created to Running, {which} of {len(full)}"
        found.append(table.Row(measure, "s", ours, theirs, "empty nodes", goal, ours - theirs <= PROMPT_S))
    workers = [trace for trace in outcome.watched.of(outcome.job) if trace.preempted]
    gone = [trace.ended_at - trace.leaving_at for trace in workers if trace.ended_at and trace.leaving_at]
    found.append(table.Row("workers preempted", "pods", len(gone), None, ""))
    found.append(table.Row("from preempted to gone, worst", "s", max(gone, default=0.0), None, ""))
    pages, failures = sum(outcome.visitor.served.values()), len(outcome.visitor.failures)
    found.append(
        table.Row(f"failures of {pages + failures:,} pages asked for", "pages", failures, None, "", "0", not failures)
    )
    found.append(table.Row("slowest page", "s", outcome.visitor.slowest_s, None, ""))
    grown = outcome.grown_s
    found.append(table.Row("the job grows back, last hour", "s", grown, None, "", f"< {GROWN_S:g}", grown < GROWN_S))
    exact = "exact" if outcome.is_exact else "not exact"
    found.append(table.Row("steps and records of the job", "", exact, None, "", "exact", outcome.is_exact))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
