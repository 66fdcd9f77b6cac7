"""Many jobs, grown in stages: what each stage costs per pod, and how fast masters and operator answer a disturbance."""

from __future__ import annotations

import os
import signal
import statistics
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

from tests.cluster import api_load, crowd, host_operator, processes
from tests.cluster.api_load import MASTERS, OPERATOR
from tests.cluster.kube import Kube
from tests.cluster.worker_pods import WorkerPods

NAMESPACE = "scale"
PATIENCE_S = 600.0


class Measures(NamedTuple):
    """How long to measure, and how many pods to delete: one after another, and at once."""

    single: int = 20
    at_once: int = 50
    idle_s: float = 10.0


class Restart(NamedTuple):
    """The operator was killed."""

    back_s: float  # until a job that was applied meanwhile had its master
    touched: int  # pods of other jobs that are not what they were
    requests: int  # of the operator, until all was quiet


_ALL = Measures()


@dataclass
class Stage:
    """Measurements with `jobs` jobs. Requests and processor time are those of the jobs added last."""

    jobs: int
    pods: int
    added: int  # pods since the stage before
    added_jobs: int
    running_s: float
    requests: Counter[str]
    refused: int
    operator: processes.Usage
    masters: list[processes.Usage]
    masters_cpu_s: float
    operator_cpu_s: float
    idle_cpu: float
    idle_s: float
    idle_requests: Counter[str]
    replaced_s: list[float]
    at_once_s: list[float]

    def per_pod(self, who: str) -> float:
        return self.requests[who] / self.added


class Scale:
    """A cluster with nodes of kwok, the operator, an empty namespace and one who counts: all as long as `stack`."""

    def __init__(self, kube: Kube, stack: ExitStack, nodes: int, workers: int, measures: Measures = _ALL) -> None:
        self._began = time.monotonic()
        self._workers = workers
        self._measures = measures
        stack.enter_context(crowd.fake_nodes(kube, nodes))
        self.say(f"{len(kube.get('nodes', '--selector=type=kwok')['items'])} nodes of kwok")
        stack.enter_context(host_operator.running(kube))
        self._api = stack.enter_context(crowd.empty_namespace(kube, NAMESPACE))
        self._load = stack.enter_context(api_load.count_requests(kube, host_operator.USER, NAMESPACE))
        self._pods = stack.enter_context(WorkerPods(self._api, NAMESPACE))
        self._crowd = crowd.Crowd(kube, self._api, NAMESPACE, workers)
        self._jobs = 0

    def say(self, words: str) -> None:
        print(f"{time.monotonic() - self._began:6.0f} s  {words}", file=sys.stderr, flush=True)

    def grow(self, jobs: int) -> Stage:
        """Applies jobs until there are `jobs`, measures, and deletes pods."""
        added, pods = (jobs - self._jobs) * self._workers, jobs * self._workers
        before, refused, pids_before = (
            self._load.by_whom(),
            self._load.refused(),
            {master.pid for master in self._masters()},
        )
        operator_s = self._operator().cpu_s
        began = time.monotonic()
        self._crowd.apply(range(self._jobs, jobs))
        self._jobs = jobs
        self._pods.wait_running(pods, PATIENCE_S)
        running_s = time.monotonic() - began
        self.say(f"{jobs} jobs: {pods} pods run, {running_s:.1f} s after they were asked for")
        self._settle()
        requests, refused = self._load.by_whom() - before, self._load.refused() - refused
        masters, operator = self._masters(), self._operator()
        quiet, idle_cpu_s = self._load.by_whom(), sum(master.cpu_s for master in masters)
        time.sleep(self._measures.idle_s)
        idle = self._load.by_whom() - quiet
        idle_cpu = (sum(master.cpu_s for master in self._masters()) - idle_cpu_s) / self._measures.idle_s / len(masters)
        self.say(f"requests per pod { ({who: round(count / added, 2) for who, count in requests.items()}) }")
        single = [self._replace(n, 1) for n in range(self._measures.single)]
        at_once = self._replace(0, self._measures.at_once)
        self.say(f"a deleted pod is replaced after {statistics.median(s for (s,) in single):.3f} s")
        self._pods.wait_running(pods, PATIENCE_S)
        return Stage(
            jobs, pods, added, added // self._workers, running_s, requests, refused, operator, masters,
            sum(master.cpu_s for master in masters if master.pid not in pids_before), operator.cpu_s - operator_s,
            idle_cpu, self._measures.idle_s, idle, [s for times_s in single for s in times_s], at_once,
        )  # fmt: skip

    def restart_operator(self) -> Restart:
        """Kills the operator and applies a job at that moment."""
        uids, masters, before = self._pods.uids(), self._crowd.masters(), self._load.by_whom()
        began = time.monotonic()
        os.kill(self._operator().pid, signal.SIGKILL)
        self._crowd.apply([self._jobs])
        while not self._crowd.has_master(self._jobs):
            assert time.monotonic() - began < PATIENCE_S, "the operator did not come back"
            time.sleep(0.05)
        back_s = time.monotonic() - began
        self._pods.wait_running((self._jobs + 1) * self._workers, PATIENCE_S)
        self._settle()
        requests = (self._load.by_whom() - before)[OPERATOR]
        uids_now, masters_now = self._pods.uids(), self._crowd.masters()
        touched = sum(uids_now.get(name) != uid for name, uid in uids.items())
        touched += sum(masters_now.get(name) != before_restart for name, before_restart in masters.items())
        self.say(f"the operator is back after {back_s:.1f} s; {touched} pods touched")
        return Restart(back_s, touched, requests)

    def delete(self, count: int) -> list[float]:
        seconds = [self._crowd.deleted_s(number, PATIENCE_S) for number in range(count)]
        self.say(f"of a deleted job nothing is left after {max(seconds):.1f} s")
        return seconds

    def _replace(self, first: int, count: int) -> list[float]:
        """Deletes `count` pods at once, of different jobs if there are enough."""
        names = [self._pods.names(self._crowd.name((first + n) % self._jobs))[n // self._jobs] for n in range(count)]
        return self._pods.replaced_s(names, PATIENCE_S)

    def _settle(self) -> None:
        """Waits until the masters send almost no requests."""
        before = self._load.by_whom()[MASTERS]
        while True:
            time.sleep(2.0)
            now = self._load.by_whom()[MASTERS]
            if now - before <= 2 + self._jobs // 20:  # a watch lasts five minutes, then it is begun again
                return
            before = now

    def _masters(self) -> list[processes.Usage]:
        return processes.running("-m", "elasticdl.launcher.kubernetes.pod", "master")

    def _operator(self) -> processes.Usage:
        return max(processes.running("-m", "elasticdl.operator"), key=lambda process: process.pid)
