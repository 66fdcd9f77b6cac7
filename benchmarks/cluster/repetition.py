"""One repetition: it applies a job, preempts one of its workers, frees the capacity again, and measures each."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from cluster import pod_steps
from cluster.jobs import WORKERS, PodJob, rival_pod
from cluster.latency import LatencyBreakdown
from cluster.timeline import ObservedObject, Timeline, WaitTimeoutError

from elasticdl.kube import kinds
from tests.cluster.kube import Kube

_T = TypeVar("_T")
STEADY_STEPS = 20  # of each worker, before anything happens to it
SETTLED_S = 2.0  # training that follows each event and belongs to the search for the longest gap
START_S = 120.0
APPLIED, PREEMPTED, FREED = (
    "from kubectl apply to first step",
    "from pod preempted to the survivors' next step",
    ("from free capacity to the new worker's first step"),
)


@dataclass(slots=True)
class RepetitionOutcome:
    """What was measured; `note` says which limit ended the repetition, if one did."""

    latencies: dict[str, LatencyBreakdown] = field(default_factory=dict)
    gap_s: float | None = None  # the longest without a survivor's step
    all_s: float | None = None  # from kubectl apply until each worker has done a step
    note: str = ""


class Repetition:
    def __init__(
        self, kube: Kube, timeline: Timeline, job: PodJob, directory: Path, namespace: str, limit_s: float
    ) -> None:
        self._kube, self._timeline, self._job, self._namespace = kube, timeline, job, namespace
        self._steps_directory = directory / "steps"
        self._limit_s = limit_s

    def run(self) -> RepetitionOutcome:
        outcome = RepetitionOutcome()
        self._steps_directory.mkdir()
        try:
            self._apply(outcome)
            with self._rival_pod() as rival:
                self._preempt(outcome, rival)
                self._free_capacity(outcome, rival)
        except WaitTimeoutError as exc:
            outcome.note = str(exc)
        finally:
            self._job.delete()
        self._wait(lambda: all("gone" in pod.since for pod in self._pods()), "the end", START_S)
        return outcome

    # ---- from kubectl apply

    def _apply(self, outcome: RepetitionOutcome) -> None:
        applied_at = time.monotonic()
        self._job.apply()
        self._wait(lambda: self._is_steady(WORKERS), "all workers to train", max(START_S, self._limit_s))
        steps_by_pod = pod_steps.read_steps(self._steps_directory)
        workers = [pod.name for pod in self._workers()]
        pod_and_step = pod_steps.first_step(steps_by_pod, workers, after=applied_at)
        assert pod_and_step is not None
        latency = LatencyBreakdown(applied_at)
        self._divide_start(latency, *pod_and_step)
        outcome.latencies[APPLIED] = latency
        outcome.all_s = max(steps_by_pod[pod][0].ended_at for pod in workers if steps_by_pod.get(pod)) - applied_at

    def _divide_start(self, latency: LatencyBreakdown, name: str, step: pod_steps.Step) -> None:
        worker = next(pod for pod in self._workers() if pod.name == name)
        jobs = [job for job in self._timeline.objects(kinds.ELASTIC_JOB, {}) if job.name == self._job.name]
        if jobs:  # ElasticDL: an operator, then a master, then workers
            master_set = self._timeline.objects(kinds.STATEFUL_SET, self._job.pod_labels)[-1]
            master = next(pod for pod in self._pods() if pod.name == f"{master_set.name}-0")
            latency.add_part(jobs[-1].since["created"], "kubectl", is_kubernetes=True)
            latency.add_part(master_set.since["created"], "the operator makes the master")
            self._add_container_start(latency, master, "master")
            latency.add_part(worker.since["created"], "the master serves and launches")
            self._add_container_start(latency, worker, "worker")
            self._add_worker_start(latency, worker, step)
        else:  # torchrun: all workers must be there
            last_pod = max(self._workers(), key=self._python_start)
            latency.add_part(self._python_start(last_pod), "kubectl and pods", is_kubernetes=True)
            latency.add_part(step.ended_at, "its start and rendezvous")

    def _add_container_start(self, latency: LatencyBreakdown, pod: ObservedObject, role: str) -> None:
        latency.add_part(
            pod.since["created"] if role == "master" else None, "the pod of the master is made", is_kubernetes=True
        )
        latency.add_part(pod.since["scheduled"], f"the pod of the {role} is scheduled", is_kubernetes=True)
        latency.add_part(self._python_start(pod), f"the container of the {role} is started", is_kubernetes=True)

    def _add_worker_start(self, latency: LatencyBreakdown, pod: ObservedObject, step: pod_steps.Step) -> None:
        """Adds the parts from the first Python of a worker's pod to its step."""
        latency.add_part(self._find_mark(pod, "imports torch", latency), "the worker's entry")
        latency.add_part(self._find_mark(pod, "imported", latency), "the worker imports torch")
        latency.add_part(step.ended_at, "the worker's model, joining, first step")

    # ---- preempted

    def _preempt(self, outcome: RepetitionOutcome, rival: str) -> None:
        node = self._node_to_preempt()
        self._kube.kubectl(
            "create", f"--namespace={self._namespace}", "--filename=-", text=json.dumps(rival_pod(rival, node))
        )
        victim = self._wait(self._preempted_worker, "a preemption", START_S)
        preempted_at = victim.since["preempted"]
        survivors = [pod.name for pod in self._workers() if pod is not victim and pod.since["created"] < preempted_at]

        def next_step() -> pod_steps.Step | None:
            if "gone" not in victim.since:  # it may still take part in a step
                return None
            return pod_steps.first_step_without(
                pod_steps.read_steps(self._steps_directory), survivors, victim.name, after=preempted_at
            )

        step = self._wait(next_step, "the survivors' next step", self._limit_s)
        latency = LatencyBreakdown(preempted_at)
        latency.add_part(
            pod_steps.find_mark(self._steps_directory, victim.name, "SIGTERM", after=preempted_at),
            "the pod hears of it",
            is_kubernetes=True,
        )
        latency.add_part(step.ended_at, "leaving, and the next step without it")
        outcome.latencies[PREEMPTED] = latency
        time.sleep(max(0.0, step.ended_at + SETTLED_S - time.monotonic()))
        steps_by_pod = pod_steps.read_steps(self._steps_directory)
        outcome.gap_s = pod_steps.longest_gap_s(
            steps_by_pod, survivors, start=preempted_at, stop=step.ended_at + SETTLED_S
        )

    def _node_to_preempt(self) -> str:
        """Returns a node with a worker that may be preempted, and without the one that may not."""
        workers = [pod for pod in self._workers() if "gone" not in pod.since]
        (spared_node,) = [pod.node for pod in workers if pod.name == self._job.spared_pod]
        return next(pod.node for pod in workers if pod.node != spared_node)

    def _preempted_worker(self) -> ObservedObject | None:
        return next((pod for pod in self._workers() if "preempted" in pod.since), None)

    # ---- capacity

    def _free_capacity(self, outcome: RepetitionOutcome, rival: str) -> None:
        """Deletes the rival; the worker that waits gets its slots."""
        rivals = self._timeline.pods({"app": rival})
        self._wait(lambda: "running" in rivals[-1].since, "the rival", START_S)
        worker = self._wait(self._waiting_worker, "a pod that waits for capacity", self._limit_s)
        time.sleep(SETTLED_S)  # the scheduler has tried to place the pod, and its back-off is over
        self._kube.kubectl("delete", "pod", rival, f"--namespace={self._namespace}")
        freed_at = self._wait(lambda: rivals[-1].since.get("gone"), "free capacity", START_S)
        pod_and_step = self._wait(
            lambda: pod_steps.first_step(pod_steps.read_steps(self._steps_directory), [worker.name], after=freed_at),
            "the new worker's first step",
            self._limit_s,
        )
        latency = LatencyBreakdown(freed_at)
        latency.add_part(worker.since["scheduled"], "the pod of the worker is scheduled", is_kubernetes=True)
        latency.add_part(self._python_start(worker), "the container of the worker is started", is_kubernetes=True)
        self._add_worker_start(latency, worker, pod_and_step[1])
        outcome.latencies[FREED] = latency

    def _waiting_worker(self) -> ObservedObject | None:
        return next((pod for pod in self._workers() if not pod.since.keys() & {"scheduled", "gone"}), None)

    # ---- looking

    @contextmanager
    def _rival_pod(self) -> Iterator[str]:
        name = "rival"
        try:
            yield name
        finally:
            self._kube.kubectl("delete", "pod", name, f"--namespace={self._namespace}", "--ignore-not-found")

    def _pods(self) -> list[ObservedObject]:
        return self._timeline.pods(self._job.pod_labels)

    def _workers(self) -> list[ObservedObject]:
        return self._timeline.pods(self._job.worker_labels)

    def _is_steady(self, count: int) -> bool:
        steps_by_pod = pod_steps.read_steps(self._steps_directory)
        return sum(len(steps_by_pod.get(pod.name, ())) >= STEADY_STEPS for pod in self._workers()) >= count

    def _python_start(self, pod: ObservedObject) -> float:
        started_at = pod_steps.find_mark(self._steps_directory, pod.name, "python", after=pod.since["created"])
        assert started_at is not None, f"no Python of {pod.name} recorded its start"
        return started_at

    def _find_mark(self, pod: ObservedObject, mark: str, latency: LatencyBreakdown) -> float | None:
        return pod_steps.find_mark(self._steps_directory, pod.name, mark, after=latency.parts[-1][2])

    def _wait(self, check: Callable[[], _T | None], what: str, limit_s: float) -> _T:
        return self._timeline.wait(check, what, limit_s)
