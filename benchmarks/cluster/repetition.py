"""One repetition: apply a job, preempt a worker of it, give the capacity back; and what each took."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from cluster import noted
from cluster.chain import Chain
from cluster.jobs import WORKERS, Job, rival
from cluster.timeline import Seen, Timeline, TooLongError

from elasticdl.kube import kinds
from tests.cluster.kube import Kube

_T = TypeVar("_T")
STEADY_STEPS = 20  # of each worker, before anything happens to it
SETTLED_S = 2.0  # of training after each event: the longest gap is looked for until then
START_S = 120.0
APPLIED, PREEMPTED, FREED = (
    "from kubectl apply to first step",
    "from pod preempted to the survivors' next step",
    ("from free capacity to the new worker's first step"),
)


@dataclass(slots=True)
class Outcome:
    """What was measured until the limit was reached, if it was."""

    chains: dict[str, Chain] = field(default_factory=dict)
    gap_s: float | None = None  # the longest without a survivor's step
    all_s: float | None = None  # from kubectl apply until each worker has done a step
    note: str = ""


class Repetition:
    def __init__(self, kube: Kube, timeline: Timeline, job: Job, place: Path, namespace: str, limit_s: float) -> None:
        self._kube, self._timeline, self._job, self._namespace = kube, timeline, job, namespace
        self._steps = place / "steps"
        self._limit_s = limit_s

    def run(self) -> Outcome:
        outcome = Outcome()
        self._steps.mkdir()
        try:
            self._apply(outcome)
            with self._rival() as name:
                self._preempt(outcome, name)
                self._free(outcome, name)
        except TooLongError as exc:
            outcome.note = str(exc)
        finally:
            self._job.delete()
        self._wait(lambda: all("gone" in pod.at for pod in self._pods()), "the end", START_S)
        return outcome

    # ---- from kubectl apply

    def _apply(self, outcome: Outcome) -> None:
        began = time.monotonic()
        self._job.apply()
        self._wait(lambda: self._steady(WORKERS), "all workers to train", max(START_S, self._limit_s))
        found = noted.steps(self._steps)
        workers = [pod.name for pod in self._workers()]
        earliest = noted.first(found, workers, after=began)
        assert earliest is not None
        chain = Chain(began)
        self._started(chain, *earliest)
        outcome.chains[APPLIED] = chain
        outcome.all_s = max(found[pod][0].at for pod in workers if found.get(pod)) - began

    def _started(self, chain: Chain, worker: str, step: noted.Step) -> None:
        (pod,) = [one for one in self._workers() if one.name == worker]
        jobs = [one for one in self._timeline.objects(kinds.ELASTIC_JOB, {}) if one.name == self._job.name]
        if jobs:  # ours: an operator, then a master, then workers
            master_set = self._timeline.objects(kinds.STATEFUL_SET, self._job.pods)[-1]
            master = next(one for one in self._pods() if one.name == f"{master_set.name}-0")
            chain.until(jobs[-1].at["created"], "kubectl", kubernetes=True)
            chain.until(master_set.at["created"], "the operator makes the master")
            self._container(chain, master, "master")
            chain.until(pod.at["created"], "the master serves and launches")
            self._container(chain, pod, "worker")
            self._begun(chain, pod, step)
        else:  # all must be there
            last = max(self._workers(), key=lambda one: self._python(one))
            chain.until(self._python(last), "kubectl and pods", kubernetes=True)
            chain.until(step.at, "its start and rendezvous")

    def _container(self, chain: Chain, pod: Seen, role: str) -> None:
        chain.until(pod.at["created"] if role == "master" else None, "the pod of the master is made", kubernetes=True)
        chain.until(pod.at["scheduled"], f"the pod of the {role} is scheduled", kubernetes=True)
        chain.until(self._python(pod), f"the container of the {role} is started", kubernetes=True)

    def _begun(self, chain: Chain, pod: Seen, step: noted.Step) -> None:
        """From the first Python of a worker's pod to a step."""
        chain.until(self._mark(pod, "imports torch", chain), "the worker's entry")
        chain.until(self._mark(pod, "imported", chain), "the worker imports torch")
        chain.until(step.at, "the worker's model, joining, first step")

    # ---- preempted

    def _preempt(self, outcome: Outcome, name: str) -> None:
        node = self._node()
        self._kube.kubectl(
            "create", f"--namespace={self._namespace}", "--filename=-", text=json.dumps(rival(name, node))
        )
        victim = self._wait(self._victim, "a preemption", START_S)
        at = victim.at["preempted"]
        survivors = [pod.name for pod in self._workers() if pod is not victim and pod.at["created"] < at]

        def next_step() -> noted.Step | None:
            if "gone" not in victim.at:  # it may still do a step with the others
                return None
            return noted.first_without(noted.steps(self._steps), survivors, victim.name, after=at)

        step = self._wait(next_step, "the survivors' next step", self._limit_s)
        chain = Chain(at)
        chain.until(noted.mark(self._steps, victim.name, "SIGTERM", after=at), "the pod hears of it", kubernetes=True)
        chain.until(step.at, "leaving, and the next step without it")
        outcome.chains[PREEMPTED] = chain
        time.sleep(max(0.0, step.at + SETTLED_S - time.monotonic()))
        found = noted.steps(self._steps)
        outcome.gap_s = noted.longest_gap_s(found, survivors, start=at, stop=step.at + SETTLED_S)

    def _node(self) -> str:
        """One with a worker that may go, and without the one that may not."""
        workers = [pod for pod in self._workers() if "gone" not in pod.at]
        (home,) = [pod.node for pod in workers if pod.name == self._job.spared]
        return next(pod.node for pod in workers if pod.node != home)

    def _victim(self) -> Seen | None:
        return next((pod for pod in self._workers() if "preempted" in pod.at), None)

    # ---- capacity

    def _free(self, outcome: Outcome, name: str) -> None:
        """The rival goes; who waits for its place gets it."""
        rivals = self._timeline.pods({"app": name})
        self._wait(lambda: "running" in rivals[-1].at, "the rival", START_S)
        waiting = self._wait(self._waiting, "a pod that waits for capacity", self._limit_s)
        time.sleep(SETTLED_S)  # the scheduler has tried it, and its pause after that is over
        self._kube.kubectl("delete", "pod", name, f"--namespace={self._namespace}")
        free = self._wait(lambda: rivals[-1].at.get("gone"), "free capacity", START_S)
        found = self._wait(
            lambda: noted.first(noted.steps(self._steps), [waiting.name], after=free),
            "the new worker's first step",
            self._limit_s,
        )
        chain = Chain(free)
        chain.until(waiting.at["scheduled"], "the pod of the worker is scheduled", kubernetes=True)
        chain.until(self._python(waiting), "the container of the worker is started", kubernetes=True)
        self._begun(chain, waiting, found[1])
        outcome.chains[FREED] = chain

    def _waiting(self) -> Seen | None:
        return next((pod for pod in self._workers() if not pod.at.keys() & {"scheduled", "gone"}), None)

    # ---- looking

    @contextmanager
    def _rival(self) -> Iterator[str]:
        name = "rival"
        try:
            yield name
        finally:
            self._kube.kubectl("delete", "pod", name, f"--namespace={self._namespace}", "--ignore-not-found")

    def _pods(self) -> list[Seen]:
        return self._timeline.pods(self._job.pods)

    def _workers(self) -> list[Seen]:
        return self._timeline.pods(self._job.workers)

    def _steady(self, count: int) -> bool:
        found = noted.steps(self._steps)
        return sum(len(found.get(pod.name, ())) >= STEADY_STEPS for pod in self._workers()) >= count

    def _python(self, pod: Seen) -> float:
        at = noted.mark(self._steps, pod.name, "python", after=pod.at["created"])
        assert at is not None, f"no Python of {pod.name} noted its beginning"
        return at

    def _mark(self, pod: Seen, word: str, chain: Chain) -> float | None:
        return noted.mark(self._steps, pod.name, word, after=chain.links[-1][2])

    def _wait(self, found: Callable[[], _T | None], what: str, limit_s: float) -> _T:
        return self._timeline.wait(found, what, limit_s)
