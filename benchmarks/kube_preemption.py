"""A web service of high priority above an elastic job of low priority, on a cluster that is always full.

    python benchmarks/kube_preemption.py [--quick] [--json FILE] [--plot PNG]

Runs on the cluster of KUBECONFIG, or on one that is started for it. Every pod of the service and every worker holds one
slot (an extended resource); the job wants all slots of the cluster. The service follows the load of a day, in minutes:
it takes slots from workers by Kubernetes's own preemption, and gives them back. The benchmark measures how many slots
running pods hold, how long a pod of the service takes from being created to running (and on the same cluster when it is
empty), and whether the Service answers requests for its page.

There are two utilisations: slots of pods that run, and, stricter, slots of workers that are members of the training and
of web pods that are ready and whose deletion was not requested. Both are weighted with time, from the first to the last
hour of the day.
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
from experiment import Kube, SlotJob, argument_parser, cluster, count_slots
from slot_usage import PodTrace, SlotWatcher, StepFunction

from elasticdl.kube.api import Api

# The number of web pods in each hour; an hour lasts HOUR_S.
DAY, HOUR_S = (1, 2, 3, 5, 6, 5, 4, 6, 4, 3, 2, 1), 20.0
QUICK_DAY, QUICK_HOUR_S = (1, 4, 6, 3, 1), 14.0
PAUSE_S = 0.05
WINDOW_S = 15.0
GOAL = 0.9
ADDED_WAIT_GOAL_S = 3.0  # at most so much longer than on empty nodes
REGROWTH_GOAL_S = 30.0  # web pods end, and several new workers import Python and torch at once


@dataclass(frozen=True, slots=True)
class DayOutcome:
    watcher: SlotWatcher
    job: str
    begin: float
    end: float
    slots: int
    empty_s: list[float]  # from created to running, without training
    full_s: list[tuple[float, float]]  # when each was created, and the same with training below
    regrowth_s: float  # from the last hour of the day until the job had all other slots
    is_exact: bool
    visitor: web.Visitor

    @property
    def running(self) -> StepFunction:
        return self.watcher.running(self.job, web.NAME)

    @property
    def strict(self) -> StepFunction:
        return self.watcher.members(self.job) + self.watcher.serving(web.NAME)


def main(argv: Sequence[str]) -> int:
    arguments = argument_parser(__doc__ or "", "kubernetes-preemption.png").parse_args(argv)
    served_by = web.ensure_nginx()
    day, hour_s = (QUICK_DAY, QUICK_HOUR_S) if arguments.quick else (DAY, HOUR_S)
    with cluster() as kube, tempfile.TemporaryDirectory() as directory, Api.connect() as api:
        job = SlotJob(kube, "night-shift", Path(directory))
        try:
            with SlotWatcher(api, job.namespace, [job.name]) as watcher:
                outcome = run_day(kube, job, watcher, day, hour_s)
        finally:
            web.delete_service(kube)
            job.remove()
    rows = build_rows(outcome)
    notes = [f"the page: {served_by}; {len(outcome.visitor.served)} pods served it", *outcome.visitor.failures[:10]]
    table.show("A web service above an elastic job", rows, notes=[*notes, table.machine()])
    title = f"a day of {len(day)} hours of {hour_s:g} s on {outcome.slots} slots"
    slot_plot.draw_preemption(arguments.plot, outcome, web.NAME, title, GOAL)
    if arguments.json:
        table.write(arguments.json, rows)
    return 0


def run_day(kube: Kube, job: SlotJob, watcher: SlotWatcher, day: Sequence[int], hour_s: float) -> DayOutcome:
    """Runs the day once on empty nodes, without pauses, and then above the job."""
    slots = count_slots(kube)
    kube.kubectl("apply", "--filename", "-", text=web.manifests())
    for web_pods in (*day, 0):
        scale_service(kube, watcher, web_pods)
    empty_s = [waiting_s(pod) for pod in watcher.pods_of(web.NAME)]
    earlier_pods = {pod.name for pod in watcher.pods_of(web.NAME)}

    scale_service(kube, watcher, day[0])
    steps_by_hour = [hour_s / (PAUSE_S * -(-slots // (slots - web_pods))) for web_pods in day]
    job.begin(slots, min_workers=1, steps=int(sum(steps_by_hour)), ranks=slots, pause_s=PAUSE_S, priority="low")
    job.wait_members(slots - day[0], step=1)
    with web.Visitor(web.service_address(kube)) as visitor:
        begin = time.monotonic()
        for hour, web_pods in enumerate(day, 1):
            last_hour_at = time.monotonic()
            scale_service(kube, watcher, web_pods)
            if hour < len(day):
                time.sleep(max(0.0, begin + hour * hour_s - time.monotonic()))  # until the hour is over
        job.wait_members(slots - day[-1])
        regrowth_s = time.monotonic() - last_hour_at
        time.sleep(max(0.0, begin + len(day) * hour_s - time.monotonic()))
        end = time.monotonic()
    job.hurry()
    full_s = [(pod.created_at, waiting_s(pod)) for pod in watcher.pods_of(web.NAME) if pod.name not in earlier_pods]
    is_exact = job.is_exact()
    return DayOutcome(watcher, job.name, begin, end, slots, empty_s, full_s[day[0] :], regrowth_s, is_exact, visitor)


def scale_service(kube: Kube, watcher: SlotWatcher, replicas: int) -> None:
    """Scales the service, and waits until all its pods are ready."""
    web.scale_deployment(kube, replicas)
    deadline = time.monotonic() + 60.0
    while True:
        pods = [pod for pod in watcher.pods_of(web.NAME) if pod.leaving_at is None and pod.ended_at is None]
        if len(pods) == replicas and all(pod.ready_at is not None for pod in pods):
            break
        if time.monotonic() > deadline:
            raise TimeoutError(f"{replicas} web pods are not ready: {pods}")
        time.sleep(0.05)


def waiting_s(pod: PodTrace) -> float:
    return (pod.running_at or pod.ended_at or pod.created_at) - pod.created_at


def build_rows(outcome: DayOutcome) -> list[table.Row]:
    begin, end, slots = outcome.begin, outcome.end, outcome.slots
    service_alone = 100 * outcome.watcher.running(web.NAME).mean(begin, end) / slots
    rows = []
    for scope, usage, goal in (
        ("pods that run", outcome.running, f"> {GOAL:.0%}"),
        ("members and ready web pods only", outcome.strict, ""),
    ):
        mean, worst = (
            100 * value / slots for value in (usage.mean(begin, end), usage.lowest_mean(begin, end, WINDOW_S))
        )
        measure = f"utilisation of the scarce resource, {scope}"
        is_met = mean > 100 * GOAL if goal else None
        rows.append(table.Row(f"{measure}, mean", "%", mean, service_alone, "the service alone", goal, is_met))
        rows.append(table.Row(f"{measure}, worst {WINDOW_S:g} s", "%", worst, None, ""))
    empty_s, full_s = outcome.empty_s, [wait for _, wait in outcome.full_s]
    for statistic, summarize in (("median", statistics.median), ("worst", max)):
        own_s, empty_nodes_s = summarize(full_s), summarize(empty_s)
        goal = f"nginx never waits for training: ≤ {ADDED_WAIT_GOAL_S:g} s more"
        measure = f"web pod from created to Running, {statistic} of {len(full_s)}"
        rows.append(
            table.Row(
                measure, "s", own_s, empty_nodes_s, "empty nodes", goal, own_s - empty_nodes_s <= ADDED_WAIT_GOAL_S
            )
        )
    workers = [worker for worker in outcome.watcher.pods_of(outcome.job) if worker.preempted]
    leaving_s = [worker.ended_at - worker.leaving_at for worker in workers if worker.ended_at and worker.leaving_at]
    rows.append(table.Row("workers preempted", "pods", len(leaving_s), None, ""))
    rows.append(table.Row("from preempted to gone, worst", "s", max(leaving_s, default=0.0), None, ""))
    pages, failures = sum(outcome.visitor.served.values()), len(outcome.visitor.failures)
    rows.append(
        table.Row(f"failures of {pages + failures:,} pages asked for", "pages", failures, None, "", "0", not failures)
    )
    rows.append(table.Row("slowest page", "s", outcome.visitor.slowest_s, None, ""))
    regrowth_s = outcome.regrowth_s
    rows.append(
        table.Row(
            "the job grows back, last hour",
            "s",
            regrowth_s,
            None,
            "",
            f"< {REGROWTH_GOAL_S:g}",
            regrowth_s < REGROWTH_GOAL_S,
        )
    )
    exact = "exact" if outcome.is_exact else "not exact"
    rows.append(table.Row("steps and records of the job", "", exact, None, "", "exact", outcome.is_exact))
    return rows


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
