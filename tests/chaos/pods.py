"""Jobs of pods under faults of workers, ps, masters, the operator and the API server; on the cluster of tests/cluster.

Pods run on this machine, so their processes are struck directly; what kubelet and operator make of it is tested.
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
from tests.chaos.job import EPOCHS, TICK_S, Outcome, Problem, count_rows, reference
from tests.chaos.schedule import POD_KINDS, POD_STRATEGIES, WITH_PS, Fault, Kind, Plan, Role, Strategy, pod_plan
from tests.chaos.striking import MOST_WORKERS, FewDescriptors, Frozen, Lasting, NotDue, Plain, is_whole
from tests.cluster import host_operator
from tests.cluster.elastic_job import SMALL, ElasticJob
from tests.cluster.kube import ROOT, Kube, running
from tests.integration.job import BATCH, LOGICAL_RANKS, digest

NAMESPACE = "chaos"
BEGIN_S, END_S, GONE_S = 180.0, 300.0, 120.0
PAUSE_S = 0.2  # of a batch while the job is struck
API_SERVER = "kube-apiserver"
_OPERATOR = ("--selector=app.kubernetes.io/component=operator", f"--namespace={host_operator.NAMESPACE}")


class PodCampaign(Campaign):
    """One cluster for all jobs of a run; `kube` starts it and takes it down."""

    mark = "chaos of pods"

    def _available(self) -> frozenset[Kind]:
        return POD_KINDS

    @contextlib.contextmanager
    def _world(self) -> Iterator[None]:
        with running() as kube:
            kube.open_namespace(NAMESPACE)
            with host_operator.running(kube):
                self._kube = kube
                yield

    def _choices(self) -> dict[str, set[str]]:
        return {**super()._choices(), "strategies": {strategy.name for strategy in POD_STRATEGIES}}

    def plan(self, number: int) -> Plan:
        names = self._names("strategies", number)
        return pod_plan(self.seed, number, [one for one in POD_STRATEGIES if one.name in names])

    def _job(self, number: int) -> Outcome:
        plan = self.plan(number)
        place = self.directory / f"job-{number}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        job = ElasticJob(self._kube, f"chaos-{number}", place, NAMESPACE)
        outcome = Outcome(plan.seed, plan.number, plan.strategy)
        story: list[str] = []
        began = time.monotonic()
        try:
            _Run(self._kube, job, plan, outcome, story).run(str(reference(self.directory)["digest"]))
        except (Problem, AssertionError) as exc:
            outcome.problem = f"{type(exc).__name__}: {exc}"
            (place / "problem.txt").write_text("\n".join([outcome.problem, *story, job.story()]))
        finally:
            job.delete()
        outcome.seconds = round(time.monotonic() - began, 1)
        (self.directory / f"job-{number}.log").write_text("\n".join(story))
        return outcome


def _start(job: ElasticJob, strategy: Strategy) -> None:
    checkpoint = {"every_steps": 20, "directory": str(job.place / "checkpoints")}
    workers = {"replicas": 2, "min": 1, "max": MOST_WORKERS, "threads": 1, "failure_budget": 1000}
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


class _Run:
    def __init__(self, kube: Kube, job: ElasticJob, plan: Plan, outcome: Outcome, story: list[str]) -> None:
        self._kube, self._job, self._plan, self._outcome, self._story = kube, job, plan, outcome, story
        self._lasting: list[tuple[float, Lasting]] = []
        self._struck: Counter[str] = Counter()

    def run(self, expected: str) -> None:
        job = self._job
        _start(job, self._plan.strategy)
        job.wait(self._has_begun, "its beginning", BEGIN_S)
        try:
            for fault in self._plan.faults:
                self._wait(fault.after_s)
                self._strike(fault)
            self._wait(max((until - time.monotonic() for until, _ in self._lasting), default=0.0))
        finally:
            for _, lasting in self._lasting:
                lasting.end()
            self._outcome.struck = dict(sorted(self._struck.items()))
        job.hurry()
        phase = job.wait(self._ended, "the end", END_S)
        self._outcome.ending = str(phase).lower()
        if phase != "Succeeded":
            raise Problem(f"it ended otherwise: {job.resource_status()}")
        self._judge(expected)
        job.delete()
        job.wait(lambda: not job.left(), "the end of all that it had", GONE_S)

    def _has_begun(self) -> bool:
        """Training, and with a second holder of each row."""
        if self._plan.strategy not in WITH_PS:
            return bool(self._job.resource_status().get("step", 0) >= 2)
        with contextlib.suppress(AssertionError):  # its master may still begin
            status = self._job.status()
            return int(status["records"]) > 0 and _has_copies(status)
        return False

    def _judge(self, expected: str) -> None:
        strategy = self._plan.strategy
        if strategy is Strategy.PODS:
            if (found := digest(self._job.output / "model.safetensors")) != expected:
                raise Problem(f"other bits than those of an undisturbed run: {found}")
            return
        result = self._job.result()
        if result["records"] != result["total_records"]:
            raise Problem(f"records were lost, or trained twice: {result}")
        batch = local.BATCH if strategy is Strategy.ASYNC_PODS else 4 * local.BATCH
        count_rows(self._job.output, _epochs(strategy), batch)

    def _ended(self) -> str:
        try:
            phase = str(self._job.resource_status().get("phase", ""))
        except AssertionError:  # an API server that was struck last may still begin
            return ""
        return phase if phase in ("Succeeded", "Failed") else ""

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            for entry in list(self._lasting):
                until, lasting = entry
                if now < until:
                    lasting.tick(now)
                else:
                    self._lasting.remove(entry)
                    lasting.end()
            if now >= deadline:
                return
            time.sleep(TICK_S)

    def _strike(self, fault: Fault) -> None:
        try:
            told = self._make(fault)
        except (NotDue, AssertionError, ProcessLookupError) as exc:  # the API server may be away just now
            self._outcome.not_due += 1
            self._tell(f"not due: {fault}: {exc}")
            return
        self._struck[str(fault)] += 1
        self._outcome.in_pairs += fault.after_s == 0
        self._tell(told)

    def _make(self, fault: Fault) -> str:
        if fault.kind is Kind.SCALE:
            wish = 1 + int(fault.strength * LOGICAL_RANKS)
            self._job.kubectl("scale", f"elasticjob/{self._job.name}", f"--replicas={wish}")
            return f"scale to {wish}"
        if fault.role is Role.PS:
            self._check_copies()
        if fault.role is Role.API_SERVER and fault.kind is Kind.KILL:
            if self._lasting:
                raise NotDue("something lasts")
            self._kube.starter("stop", API_SERVER, "--kill")
            self._last(fault, Plain(self._start_api_server))
            return f"{API_SERVER} killed for {fault.lasts_s:.1f} s"
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
                    self._last(fault, FewDescriptors(pid))
                case _:
                    self._last(fault, Frozen(pid, is_slow=fault.kind is Kind.SLOW, now=time.monotonic()))
        return f"{fault.kind} {name}" + ("" if fault.kind is Kind.KILL else f" for {fault.lasts_s:.1f} s")

    def _check_copies(self) -> None:
        """A ps is struck only while its rows have a second holder: losing both is another promise, of checkpoints."""
        if self._lasting:
            raise NotDue("something lasts")
        try:
            status = self._job.status()
        except subprocess.TimeoutExpired as exc:
            raise NotDue("nobody can say whether copies are whole") from exc
        if not _has_copies(status):
            raise NotDue("copies are not whole")

    def _last(self, fault: Fault, lasting: Lasting) -> None:
        self._lasting.append((time.monotonic() + fault.lasts_s, lasting))

    def _start_api_server(self) -> None:
        self._kube.starter("start", API_SERVER)

    def _processes(self, fault: Fault) -> tuple[list[int], str]:
        if fault.role is Role.API_SERVER:
            pids = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/comm") if _reads(path) == API_SERVER]
            found = pids, API_SERVER
        else:
            _, name = self._pod(fault)
            found = _of_pod(name), name
        if not found[0]:
            raise NotDue(f"no process of {found[1]}")
        return found

    def _pod(self, fault: Fault) -> tuple[str, str]:
        """Namespace and name of one that runs."""
        if fault.role is Role.OPERATOR:
            found = self._kube.get("pods", *_OPERATOR)["items"]
        else:
            found = list(self._job.pods(fault.role.value).values())
        names = sorted(
            (pod["metadata"]["namespace"], pod["metadata"]["name"])
            for pod in found
            if pod["status"]["phase"] == "Running"
        )
        if not names:
            raise NotDue(f"no {fault.role} runs")
        namespace, name = names[int(fault.which * len(names))]
        return str(namespace), str(name)

    def _tell(self, what: str) -> None:
        self._story.append(f"{time.time():.2f} {what}")


def _has_copies(status: dict[str, Any]) -> bool:
    """Whether all rows have a second holder, by what `elasticdl status --json` says."""
    found = [pb.PsStatus(state=one["state"], slots=one["slots"], backup=one["backup"] or "") for one in status["ps"]]
    return is_whole(pb.JobStatus(desired_ps=status["desired_ps"], ps=found))


def _of_pod(name: str) -> list[int]:
    """The processes of a pod, by the host name that kubelet gives them."""
    wanted = f"HOSTNAME={name}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
    return found


def _reads(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text().strip()
    return ""
