"""Runs jobs of pods with faults of workers, ps, masters, operator and API server, on the cluster of tests/cluster.

Pods run on this machine, so faults hit their processes directly; kubelet and operator must deal with them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elasticdl.rpc import elasticdl_pb2 as pb
from tests.chaos import job as local
from tests.chaos.campaign import Campaign
from tests.chaos.injection import (
    MAX_WORKERS,
    ActiveFault,
    DescriptorLimit,
    NotApplicable,
    StoppedProcess,
    UntilEnd,
    has_backups,
)
from tests.chaos.job import EPOCHS, TICK_S, Outcome, Problem, count_rows, reference_results
from tests.chaos.schedule import POD_KINDS, POD_STRATEGIES, WITH_PS, Fault, Kind, Plan, Role, Strategy, plan_pod_job
from tests.cluster import host_operator
from tests.cluster.elastic_job import SMALL, ElasticJob
from tests.cluster.kube import ROOT, Kube, running
from tests.integration.job import BATCH, LOGICAL_RANKS, digest

NAMESPACE = "chaos"
START_TIMEOUT_S, END_TIMEOUT_S, EXIT_TIMEOUT_S = 180.0, 300.0, 120.0
PAUSE_S = 0.2  # of a batch while faults are injected
API_SERVER = "kube-apiserver"
_OPERATOR = ("--selector=app.kubernetes.io/component=operator", f"--namespace={host_operator.NAMESPACE}")


class PodCampaign(Campaign):
    """Runs all jobs on one cluster, which is started for the campaign."""

    mark = "chaos of pods"

    def _available_kinds(self) -> frozenset[Kind]:
        return POD_KINDS

    @contextlib.contextmanager
    def _shared_environment(self) -> Iterator[None]:
        with running() as kube:
            kube.open_namespace(NAMESPACE)
            with host_operator.running(kube):
                self._kube = kube
                yield

    def _available_choices(self) -> dict[str, set[str]]:
        return {**super()._available_choices(), "strategies": {strategy.name for strategy in POD_STRATEGIES}}

    def plan(self, number: int) -> Plan:
        names = self._choices_of_job("strategies", number)
        return plan_pod_job(self.seed, number, [strategy for strategy in POD_STRATEGIES if strategy.name in names])

    def _run_job(self, number: int) -> Outcome:
        plan = self.plan(number)
        job_directory = self.directory / f"job-{number}"
        shutil.rmtree(job_directory, ignore_errors=True)
        job_directory.mkdir(parents=True)
        job = ElasticJob(self._kube, f"chaos-{number}", job_directory, NAMESPACE)
        outcome = Outcome(plan.seed, plan.number, plan.strategy)
        log: list[str] = []
        began = time.monotonic()
        try:
            _PodJobRun(self._kube, job, plan, outcome, log).run(str(reference_results(self.directory)["digest"]))
        except (Problem, AssertionError) as exc:
            outcome.problem = f"{type(exc).__name__}: {exc}"
            (job_directory / "problem.txt").write_text("\n".join([outcome.problem, *log, job.story()]))
        finally:
            job.delete()
        outcome.seconds = round(time.monotonic() - began, 1)
        (self.directory / f"job-{number}.log").write_text("\n".join(log))
        return outcome


def _start(job: ElasticJob, strategy: Strategy) -> None:
    checkpoint = {"every_steps": 20, "directory": str(job.shared_directory / "checkpoints")}
    workers = {"replicas": 2, "min": 1, "max": MAX_WORKERS, "threads": 1, "failure_budget": 1000}
    if strategy is Strategy.PODS:
        plan = {"epochs": EPOCHS[Strategy.ALL_REDUCE], "global_batch_size": BATCH, "logical_ranks": LOGICAL_RANKS}
        job.apply(2, slow=True, plan=plan, checkpoint=checkpoint)
        return
    plan = {"epochs": _epochs(strategy), "logical_ranks": 4}
    mode = "async" if strategy is Strategy.ASYNC_PODS else "hybrid"
    plan |= {"minibatch_size": local.BATCH} if mode == "async" else {"global_batch_size": 4 * local.BATCH}
    params = {"slow": str(job.slow), "pause_s": PAUSE_S}
    job.apply(
        2, slow=True, plan=plan, checkpoint=checkpoint, workers=workers,
        model={"zoo": str(ROOT / "tests" / "integration"), "definition": "counting.forward", "params": params},
        ps={"replicas": 2, "backups": 1, "mode": mode, "embeddings": "all"},
        timing={"lease_s": 10, "lease_attempts": 100},
        cluster=job.document(2)["spec"]["cluster"] | {"ps": SMALL},
    )  # fmt: skip


def _epochs(strategy: Strategy) -> int:
    return EPOCHS[Strategy.ASYNC if strategy is Strategy.ASYNC_PODS else Strategy.HYBRID]


class _PodJobRun:
    def __init__(self, kube: Kube, job: ElasticJob, plan: Plan, outcome: Outcome, log: list[str]) -> None:
        self._kube, self._job, self._plan, self._outcome, self._log = kube, job, plan, outcome, log
        self._active: list[tuple[float, ActiveFault]] = []
        self._injected: Counter[str] = Counter()

    def run(self, expected: str) -> None:
        job = self._job
        _start(job, self._plan.strategy)
        job.wait(self._is_training, "its first steps", START_TIMEOUT_S)
        try:
            for fault in self._plan.faults:
                self._wait(fault.delay_s)
                self._inject(fault)
            self._wait(max((until - time.monotonic() for until, _ in self._active), default=0.0))
        finally:
            for _, active in self._active:
                active.end()
            self._outcome.injected = dict(sorted(self._injected.items()))
        job.hurry()
        phase = job.wait(self._end_phase, "the end", END_TIMEOUT_S)
        self._outcome.ending = str(phase).lower()
        if phase != "Succeeded":
            raise Problem(f"it did not succeed: {job.resource_status()}")
        self._check_end(expected)
        job.delete()
        job.wait(lambda: not job.remaining_objects(), "the deletion of its objects", EXIT_TIMEOUT_S)

    def _is_training(self) -> bool:
        """Whether it trains, and every row has a backup."""
        if self._plan.strategy not in WITH_PS:
            return bool(self._job.resource_status().get("step", 0) >= 2)
        with contextlib.suppress(AssertionError):  # its master may still start
            status = self._job.status()
            return int(status["records"]) > 0 and _status_has_backups(status)
        return False

    def _check_end(self, expected: str) -> None:
        strategy = self._plan.strategy
        if strategy is Strategy.PODS:
            if (model_digest := digest(self._job.output / "model.safetensors")) != expected:
                raise Problem(f"the model differs from that of an undisturbed run: {model_digest}")
            return
        result = self._job.result()
        if result["records"] != result["total_records"]:
            raise Problem(f"records were lost, or trained twice: {result}")
        batch = local.BATCH if strategy is Strategy.ASYNC_PODS else 4 * local.BATCH
        count_rows(self._job.output, _epochs(strategy), batch)

    def _end_phase(self) -> str:
        try:
            phase = str(self._job.resource_status().get("phase", ""))
        except AssertionError:  # the API server may still start after the last fault
            return ""
        return phase if phase in ("Succeeded", "Failed") else ""

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            for entry in list(self._active):
                until, active = entry
                if now < until:
                    active.tick(now)
                else:
                    self._active.remove(entry)
                    active.end()
            if now >= deadline:
                return
            time.sleep(TICK_S)

    def _inject(self, fault: Fault) -> None:
        try:
            description = self._inject_now(fault)
        except (NotApplicable, AssertionError, ProcessLookupError) as exc:  # the API server may not answer now
            self._outcome.not_applicable += 1
            self._record(f"not applicable: {fault}: {exc}")
            return
        self._injected[str(fault)] += 1
        self._outcome.in_pairs += fault.delay_s == 0
        self._record(description)

    def _inject_now(self, fault: Fault) -> str:
        if fault.kind is Kind.SCALE:
            workers = 1 + int(fault.strength * LOGICAL_RANKS)
            self._job.kubectl("scale", f"elasticjob/{self._job.name}", f"--replicas={workers}")
            return f"scale to {workers}"
        if fault.role is Role.PS:
            self._check_backups()
        if fault.role is Role.API_SERVER and fault.kind is Kind.KILL:
            if self._active:
                raise NotApplicable("another fault is active")
            self._kube.starter("stop", API_SERVER, "--kill")
            self._start(fault, UntilEnd(self._start_api_server))
            return f"{API_SERVER} killed for {fault.duration_s:.1f} s"
        if fault.kind is Kind.TERMINATE:
            namespace, name = self._pod(fault)
            self._kube.kubectl("delete", "pod", name, f"--namespace={namespace}", "--wait=false", timeout_s=20.0)
            return f"delete {name}"
        pids, name = self._processes(fault)
        for pid in pids:
            match fault.kind:
                case Kind.KILL:
                    os.kill(pid, signal.SIGKILL)
                case Kind.EMFILE:
                    self._start(fault, DescriptorLimit(pid))
                case _:
                    self._start(fault, StoppedProcess(pid, is_slow=fault.kind is Kind.SLOW, now=time.monotonic()))
        return f"{fault.kind} {name}" + ("" if fault.kind is Kind.KILL else f" for {fault.duration_s:.1f} s")

    def _check_backups(self) -> None:
        """A ps is hit only while its rows have a backup: losing both is a matter of checkpoints."""
        if self._active:
            raise NotApplicable("another fault is active")
        try:
            status = self._job.status()
        except subprocess.TimeoutExpired as exc:
            raise NotApplicable("the state of the backups is unknown") from exc
        if not _status_has_backups(status):
            raise NotApplicable("backups are incomplete")

    def _start(self, fault: Fault, active: ActiveFault) -> None:
        self._active.append((time.monotonic() + fault.duration_s, active))

    def _start_api_server(self) -> None:
        self._kube.starter("start", API_SERVER)

    def _processes(self, fault: Fault) -> tuple[list[int], str]:
        if fault.role is Role.API_SERVER:
            pids = [
                int(path.parent.name) for path in Path("/proc").glob("[0-9]*/comm") if _read_text(path) == API_SERVER
            ]
            name = API_SERVER
        else:
            _, name = self._pod(fault)
            pids = _pod_processes(name)
        if not pids:
            raise NotApplicable(f"no process of {name}")
        return pids, name

    def _pod(self, fault: Fault) -> tuple[str, str]:
        """Returns namespace and name of a running pod."""
        if fault.role is Role.OPERATOR:
            pods = self._kube.get("pods", *_OPERATOR)["items"]
        else:
            pods = list(self._job.pods(fault.role.value).values())
        names = sorted(
            (pod["metadata"]["namespace"], pod["metadata"]["name"])
            for pod in pods
            if pod["status"]["phase"] == "Running"
        )
        if not names:
            raise NotApplicable(f"no {fault.role} runs")
        namespace, name = names[int(fault.target * len(names))]
        return str(namespace), str(name)

    def _record(self, message: str) -> None:
        self._log.append(f"{time.time():.2f} {message}")


def _status_has_backups(status: dict[str, Any]) -> bool:
    """Whether all rows have a backup, according to `elasticdl status --json`."""
    all_ps = [pb.PsStatus(state=ps["state"], slots=ps["slots"], backup=ps["backup"] or "") for ps in status["ps"]]
    return has_backups(pb.JobStatus(desired_ps=status["desired_ps"], ps=all_ps))


def _pod_processes(name: str) -> list[int]:
    """Returns the processes of a pod, found by the host name that kubelet gives them."""
    variable = f"HOSTNAME={name}".encode()
    pids = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if variable in entry.read_bytes().split(b"\0"):
                pids.append(int(entry.parent.name))
    return pids


def _read_text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text().strip()
    return ""
