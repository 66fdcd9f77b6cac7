"""Who holds the slots of a cluster, over time, as watches of its pods and of the status of its jobs report it.

A slot is one unit of the extended resource `kube.here/slot`, which is scarce as a GPU is but needs no hardware.
`PodTrace`, `JobTrace` and `StepFunction` are pure; `SlotWatcher` feeds them from threads, with the time at which each
change arrived.
"""

from __future__ import annotations

import json
import threading
import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

from elasticdl.kube.api import Api
from elasticdl.kube.kinds import CONFIG_MAP, POD
from elasticdl.kube.watch import ObjectChange, follow_changes
from elasticdl.launcher.kubernetes.naming import JOB_LABEL

SLOT = "kube.here/slot"
Document = dict[str, Any]


class StepFunction:
    """A number that is constant between changes: pairs of a time and the value from then on."""

    def __init__(self, steps: Iterable[tuple[float, float]]) -> None:
        self.steps = sorted(steps)
        self._moments = [moment for moment, _ in self.steps]

    @classmethod
    def from_spans(cls, spans: Iterable[tuple[float, float | None, float]]) -> StepFunction:
        """Returns the sum of spans of (begin, end, height). A span that ends at None has not ended yet."""
        changes: dict[float, float] = {}
        for begin, end, height in spans:
            changes[begin] = changes.get(begin, 0.0) + height
            if end is not None:
                changes[end] = changes.get(end, 0.0) - height
        moments = sorted(changes)
        return cls(zip(moments, accumulate(changes[moment] for moment in moments), strict=True))

    def __add__(self, other: StepFunction) -> StepFunction:
        moments = sorted({*self._moments, *other._moments})
        return StepFunction((moment, self.value_at(moment) + other.value_at(moment)) for moment in moments)

    def value_at(self, moment: float) -> float:
        index = bisect_right(self._moments, moment) - 1
        return self.steps[index][1] if index >= 0 else 0.0

    def mean(self, begin: float, end: float) -> float:
        """Returns the mean, weighted with time."""
        bounds = [begin, *self._moments[bisect_right(self._moments, begin) :], end]
        bounds = [moment for moment in bounds if moment <= end]
        return sum((late - early) * self.value_at(early) for early, late in pairwise(bounds)) / (end - begin)

    def lowest_mean(self, begin: float, end: float, window_s: float) -> float:
        """Returns the lowest mean of any window of this length."""
        starts = [begin, end - window_s, *self._moments, *(moment - window_s for moment in self._moments)]
        return min(self.mean(moment, moment + window_s) for moment in starts if begin <= moment <= end - window_s)


def requested_slots(pod: Document) -> int:
    return sum(
        int(container.get("resources", {}).get("limits", {}).get(SLOT, 0)) for container in pod["spec"]["containers"]
    )


@dataclass(slots=True)
class PodTrace:
    """What the watch has reported about one pod. Times are those at which its changes arrived."""

    name: str
    group: str  # its job or its app
    slots: int
    created_at: float
    running_at: float | None = None
    ready_at: float | None = None
    leaving_at: float | None = None  # its deletion was requested
    preempted: bool = False
    ended_at: float | None = None

    def update(self, pod: Document | None, now: float) -> None:
        """Takes the pod as it is now; None means that it is gone."""
        status = (pod or {}).get("status", {})
        conditions = {condition["type"]: condition for condition in status.get("conditions") or []}
        if pod is None or status.get("phase") in ("Succeeded", "Failed"):
            self.ended_at = self.ended_at or now
        elif status.get("phase") == "Running":
            self.running_at = self.running_at or now
        if conditions.get("Ready", {}).get("status") == "True":
            self.ready_at = self.ready_at or now
        self.preempted |= conditions.get("DisruptionTarget", {}).get("reason") == "PreemptionByScheduler"
        if pod is not None and "deletionTimestamp" in pod["metadata"]:
            self.leaving_at = self.leaving_at or now

    @property
    def running(self) -> tuple[float, float | None, float]:
        """Returns the span in which its container ran, and its slots."""
        begin = self.running_at if self.running_at is not None else self.ended_at or self.created_at
        return begin, self.ended_at, self.slots if self.running_at is not None else 0

    @property
    def serving(self) -> tuple[float, float | None, float]:
        """Returns the span in which it was ready and its deletion was not requested, and its slots."""
        begin = self.ready_at if self.ready_at is not None else self.ended_at or self.created_at
        ends = [moment for moment in (self.leaving_at, self.ended_at) if moment is not None]
        return begin, max(begin, min(ends)) if ends else None, self.slots if self.ready_at is not None else 0


@dataclass(slots=True)
class JobTrace:
    """What the master of a job has reported in its ConfigMap, with the times at which the reports arrived."""

    members: list[tuple[float, float]] = field(default_factory=list)
    steps: list[tuple[float, int]] = field(default_factory=list)
    ended_at: float | None = None

    def update(self, data: Document, now: float) -> None:
        """Takes the `data` of the ConfigMap."""
        status = json.loads(data["status.json"])
        if "result.json" in data:
            self.ended_at = self.ended_at or now
        workers = status.get("workers", [])
        self.members.append(
            (now, sum(worker.get("state") == "member" and worker.get("rank", 0) >= 0 for worker in workers))
        )
        self.steps.append((now, int(status.get("step", 0))))

    @property
    def first_step_at(self) -> float | None:
        return next((moment for moment, step in self.steps if step > 0), None)


class SlotWatcher:
    """Follows the pods that request slots and the status of the named jobs, until the end of the `with`."""

    def __init__(self, api: Api, namespace: str, jobs: Sequence[str]) -> None:
        self._api = api
        self._namespace = namespace
        self._stopped = threading.Event()
        self.pods: dict[str, PodTrace] = {}  # by uid
        self.jobs = {job: JobTrace() for job in jobs}

    def __enter__(self) -> SlotWatcher:
        threading.Thread(target=self._follow_pods, name="slots", daemon=True).start()
        for job in self.jobs:
            threading.Thread(target=self._follow_job, args=(job,), name=f"status-{job}", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()

    def pods_of(self, group: str) -> list[PodTrace]:
        return [trace for trace in list(self.pods.values()) if trace.group == group]

    def running(self, *groups: str) -> StepFunction:
        """Returns the slots of pods whose containers run."""
        return StepFunction.from_spans(trace.running for group in groups for trace in self.pods_of(group))

    def serving(self, group: str) -> StepFunction:
        return StepFunction.from_spans(trace.serving for trace in self.pods_of(group))

    def members(self, job: str, slots_each: int = 1) -> StepFunction:
        """Returns the slots of workers that take part in the training: never more than run."""
        running = self.running(job)
        reported = StepFunction((moment, count * slots_each) for moment, count in self.jobs[job].members)
        moments = sorted({moment for moment, _ in (*running.steps, *reported.steps)})
        return StepFunction((moment, min(running.value_at(moment), reported.value_at(moment))) for moment in moments)

    def _follow_pods(self) -> None:
        for changes in follow_changes(self._api, POD, self._namespace, "", self._stopped):
            for change in changes:
                self._see(change, time.monotonic())

    def _see(self, change: ObjectChange, now: float) -> None:
        pod = change.after or change.before
        assert pod is not None
        if slots := requested_slots(pod):
            metadata = pod["metadata"]
            labels = metadata.get("labels", {})
            group = labels.get(JOB_LABEL) or labels.get("app", "")
            trace = self.pods.setdefault(metadata["uid"], PodTrace(metadata["name"], group, slots, now))
            trace.update(change.after, now)

    def _follow_job(self, job: str) -> None:
        field_selector = f"metadata.name={job}-status"
        for changes in follow_changes(self._api, CONFIG_MAP, self._namespace, "", self._stopped, fields=field_selector):
            for change in changes:
                if change.after is not None and "status.json" in change.after.get("data", {}):
                    self.jobs[job].update(change.after["data"], time.monotonic())
