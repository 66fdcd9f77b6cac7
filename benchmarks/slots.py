"""Who holds the slots of a cluster, over time: what a watch of its pods and of the jobs' own words told, and when.

A slot is one of the extended resource `kube.here/slot`: scarce as a GPU is, without hardware. `Trace` and `Course` are
pure; `Watched` feeds them from threads, with the moment at which each change was heard.
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


class Course:
    """A number that changes at moments: (since when, what)."""

    def __init__(self, steps: Iterable[tuple[float, float]]) -> None:
        self.steps = sorted(steps)
        self._moments = [at for at, _ in self.steps]

    @classmethod
    def of(cls, spans: Iterable[tuple[float, float | None, float]]) -> Course:
        """The sum of what holds from one moment to another, or (None) to this day."""
        changes: dict[float, float] = {}
        for begin, end, height in spans:
            changes[begin] = changes.get(begin, 0.0) + height
            if end is not None:
                changes[end] = changes.get(end, 0.0) - height
        moments = sorted(changes)
        return cls(zip(moments, accumulate(changes[at] for at in moments), strict=True))

    def __add__(self, other: Course) -> Course:
        moments = sorted({*self._moments, *other._moments})
        return Course((at, self.at(at) + other.at(at)) for at in moments)

    def at(self, moment: float) -> float:
        index = bisect_right(self._moments, moment) - 1
        return self.steps[index][1] if index >= 0 else 0.0

    def mean(self, begin: float, end: float) -> float:
        """Weighted with time."""
        bounds = [begin, *self._moments[bisect_right(self._moments, begin) :], end]
        bounds = [at for at in bounds if at <= end]
        return sum((late - early) * self.at(early) for early, late in pairwise(bounds)) / (end - begin)

    def worst(self, begin: float, end: float, window_s: float) -> float:
        """The lowest mean of any window of this length."""
        starts = [begin, end - window_s, *self._moments, *(at - window_s for at in self._moments)]
        return min(self.mean(at, at + window_s) for at in starts if begin <= at <= end - window_s)


def slots_asked(pod: Document) -> int:
    return sum(int(one.get("resources", {}).get("limits", {}).get(SLOT, 0)) for one in pod["spec"]["containers"])


@dataclass(slots=True)
class Trace:
    """One pod, from hearing of it to hearing of its end."""

    name: str
    group: str  # the job or the app it is of
    slots: int
    created_at: float
    running_at: float | None = None
    ready_at: float | None = None
    leaving_at: float | None = None  # somebody asked for its end
    preempted: bool = False
    ended_at: float | None = None

    def see(self, pod: Document | None, now: float) -> None:
        """`pod` as it is now; None: it is gone."""
        status = (pod or {}).get("status", {})
        conditions = {one["type"]: one for one in status.get("conditions") or []}
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
        """The span in which its container ran, and its slots."""
        begin = self.running_at if self.running_at is not None else self.ended_at or self.created_at
        return begin, self.ended_at, self.slots if self.running_at is not None else 0

    @property
    def serving(self) -> tuple[float, float | None, float]:
        """The span in which it was ready and nobody had asked for its end."""
        begin = self.ready_at if self.ready_at is not None else self.ended_at or self.created_at
        ends = [at for at in (self.leaving_at, self.ended_at) if at is not None]
        return begin, max(begin, min(ends)) if ends else None, self.slots if self.ready_at is not None else 0


@dataclass(slots=True)
class Said:
    """What the master of a job wrote down, and when we heard it."""

    members: list[tuple[float, float]] = field(default_factory=list)
    steps: list[tuple[float, int]] = field(default_factory=list)
    ended_at: float | None = None

    def see(self, data: Document, now: float) -> None:
        """`data` of its ConfigMap."""
        status = json.loads(data["status.json"])
        if "result.json" in data:
            self.ended_at = self.ended_at or now
        workers = status.get("workers", [])
        self.members.append((now, sum(one.get("state") == "member" and one.get("rank", 0) >= 0 for one in workers)))
        self.steps.append((now, int(status.get("step", 0))))

    @property
    def first_step_at(self) -> float | None:
        return next((at for at, step in self.steps if step > 0), None)


class Watched:
    """Pods that ask for slots, and the status of the jobs named; until the end of the `with`."""

    def __init__(self, api: Api, namespace: str, jobs: Sequence[str]) -> None:
        self._api = api
        self._namespace = namespace
        self._stopped = threading.Event()
        self.traces: dict[str, Trace] = {}  # by uid
        self.said = {job: Said() for job in jobs}

    def __enter__(self) -> Watched:
        threading.Thread(target=self._follow_pods, name="slots", daemon=True).start()
        for job in self.said:
            threading.Thread(target=self._follow_job, args=(job,), name=f"status-{job}", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()

    def of(self, group: str) -> list[Trace]:
        return [trace for trace in list(self.traces.values()) if trace.group == group]

    def running(self, *groups: str) -> Course:
        """Slots of pods whose containers run."""
        return Course.of(trace.running for group in groups for trace in self.of(group))

    def serving(self, group: str) -> Course:
        return Course.of(trace.serving for trace in self.of(group))

    def members(self, job: str, slots_each: int = 1) -> Course:
        """Slots of workers that take part in the training: never more than run."""
        running = self.running(job)
        said = Course((at, count * slots_each) for at, count in self.said[job].members)
        moments = sorted({at for at, _ in (*running.steps, *said.steps)})
        return Course((at, min(running.at(at), said.at(at))) for at in moments)

    def _follow_pods(self) -> None:
        for changes in follow_changes(self._api, POD, self._namespace, "", self._stopped):
            for change in changes:
                self._see(change, time.monotonic())

    def _see(self, change: ObjectChange, now: float) -> None:
        pod = change.after or change.before
        assert pod is not None
        if slots := slots_asked(pod):
            metadata = pod["metadata"]
            labels = metadata.get("labels", {})
            group = labels.get(JOB_LABEL) or labels.get("app", "")
            trace = self.traces.setdefault(metadata["uid"], Trace(metadata["name"], group, slots, now))
            trace.see(change.after, now)

    def _follow_job(self, job: str) -> None:
        chosen = f"metadata.name={job}-status"
        for changes in follow_changes(self._api, CONFIG_MAP, self._namespace, "", self._stopped, fields=chosen):
            for change in changes:
                if change.after is not None and "status.json" in change.after.get("data", {}):
                    self.said[job].see(change.after["data"], time.monotonic())
