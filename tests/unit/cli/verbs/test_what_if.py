"""`elasticdl simulate --what-if`: on a snapshot in a file, on this machine's scheduler, and on a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elasticdl.jobs import home
from elasticdl.kube.kinds import ELASTIC_JOB, NODE, POD
from elasticdl.scheduler import snapshot_file
from elasticdl.scheduler.accounts.report import JobAccount, ScheduledJobState, ScheduledJobStatus, SchedulerReport
from elasticdl.scheduler.accounts.submission import JobSubmission
from elasticdl.scheduler.kubernetes.annotations import PRIORITY, REQUESTED_WORKERS, SCHEDULER, SUSPENDED_BY
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, Snapshot
from elasticdl.scheduler.snapshot_file import SnapshotWithUnits
from elasticdl.sim.traces.recorded import AssumedScalingModel
from elasticdl.spec import load
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text("name: mine\nmodel: {definition: m.f}\nworkers: {replicas: 4, min: 2, max: 4, threads: 1}\n")
    return path


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    running_job = JobInfo(
        "other", 1.0, 6, 6, workers={"n0": 6}, rates=AssumedScalingModel(6, 1.0), work_left=600.0, started_at=1.0
    )
    snapshot_file.write_snapshot(
        tmp_path / "s.json", SnapshotWithUnits(Snapshot(50.0, (NodeInfo("n0", 8),), (running_job,)))
    )
    return tmp_path / "s.json"


def test_the_answer_has_the_start_time_the_workers_and_the_nodes(
    elasticdl: Run, job: Path, snapshot: Path, tmp_path: Path
) -> None:
    result = elasticdl(
        *("simulate", "--what-if", job, "--snapshot", snapshot),
        *("--policy", "fifo-gang,max-min", "--json", tmp_path / "answer.json"),
    )

    assert result.exit_code == 0, result.output
    assert "mine would start in about 10.0 min under fifo-gang, with 4 workers: 4 on n0" in result.output
    assert "mine would start at once under max-min, with 2 workers of 4 it could use: 2 on n0" in result.output
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert (answer["fifo-gang"]["wait_s"], answer["max-min"]["wait_s"]) == (600.0, 0.0)


def test_without_a_snapshot_the_local_scheduler_is_used(elasticdl: Run, job: Path, tmp_path: Path) -> None:
    queue = home.local_queue()
    spec = load.resolve_job(
        {"name": "there", "model": {"definition": "m.f"}, "workers": {"replicas": 3, "min": 3, "threads": 1}}
    )
    queue.submit(JobSubmission.from_spec(spec, 10.0, {}, priority=0, queue=""))
    account = JobAccount(started_at=10.0, attained_s=300.0, executed_s=100.0, step=100, total_steps=1000)
    standing = ScheduledJobStatus(ScheduledJobState.RUNNING, {"here": 3}, 3, "all it wants", account=account)
    queue.save_report(SchedulerReport(20.0, "fifo-gang", {"here": 4}, "", {"there": standing}))

    result = elasticdl("simulate", "--what-if", job, "--write-snapshot", tmp_path / "s.json")

    assert "s.json: 1 node with 4 devices for workers, 1 job\n" in result.output
    # 900 steps are left, at one a second.
    assert "mine would start in about 15.0 min under fifo-gang, with 4 workers" in result.output
    assert snapshot_file.read_snapshot(tmp_path / "s.json").snapshot.jobs[0].work_left == 900


def test_without_a_scheduler_or_snapshot_the_fix_is_reported(elasticdl: Run, job: Path) -> None:
    result = elasticdl("simulate", "--what-if", job)

    assert result.exit_code == 2
    assert "start `elasticdl scheduler`, or give --snapshot FILE, or --on kubernetes" in result.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--trace", "synthetic"), "--trace: is for a trace"),
        (("--on", "kubernetes"), "expected --snapshot, or a cluster"),
        (("--priority", "x"), "--priority"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(
    elasticdl: Run, job: Path, snapshot: Path, words: tuple[str, ...], complaint: str
) -> None:
    result = elasticdl("simulate", "--what-if", job, "--snapshot", snapshot, *words)

    assert result.exit_code == 2 and complaint in result.stderr


def test_what_if_options_are_refused_when_a_trace_is_simulated(elasticdl: Run, snapshot: Path) -> None:
    result = elasticdl("simulate", "--policy", "fifo-gang", "--trace", "synthetic", "--snapshot", snapshot)

    assert result.exit_code == 2 and "--snapshot: is for --what-if" in result.stderr


def put(
    api: FakeApi, kind: Any, name: str, namespace: str = "", labels: dict[str, str] | None = None, **more: Any
) -> None:
    metadata: dict[str, Any] = {"name": name, "labels": labels or {}}
    if namespace:
        metadata["namespace"] = namespace
    api.create({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **more})


def worker(api: FakeApi, job: str, number: int, node: str) -> None:
    labels = {"app.kubernetes.io/name": "elasticdl", "elasticdl.org/job": job, "elasticdl.org/role": "worker"}
    asks = {"resources": {"requests": {"cpu": "1", "memory": "2Gi"}}}
    spec = {"nodeName": node, "containers": [asks]}
    put(api, POD, f"{job}-worker-{number}", "default", labels, spec=spec, status={"phase": "Running"})


def test_a_snapshot_of_a_cluster_is_read_from_its_api_server(elasticdl: Run, cluster: FakeApi, tmp_path: Path) -> None:
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "4", "memory": "16Gi"}}
    labels = {"topology.kubernetes.io/zone": "zone-a"}
    put(cluster, NODE, "n0", labels=labels, spec={}, status=ready)
    put(cluster, NODE, "n1", spec={}, status=ready)
    put(cluster, NODE, "barred", spec={"unschedulable": True}, status=ready)
    put(cluster, NODE, "sick", spec={}, status=ready | {"conditions": []})
    container = {"resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}}
    put(
        cluster,
        POD,
        "alien",
        "kube-system",
        spec={"nodeName": "n1", "containers": [container]},
        status={"phase": "Running"},
    )
    put(
        cluster,
        POD,
        "gone",
        "kube-system",
        spec={"nodeName": "n1", "containers": [container]},
        status={"phase": "Failed"},
    )
    put_job(cluster, "there", {"replicas": 4, "min": 3, "max": 4}, annotations={PRIORITY: "3", REQUESTED_WORKERS: "3"})
    for number in range(3):
        worker(cluster, "there", number, "n0")
    worker(cluster, "by-train", 0, "n0")  # of `elasticdl train`: no scheduler changes its workers
    put_job(cluster, "awaited", {"replicas": 2}, suspend=True, annotations={SUSPENDED_BY: SCHEDULER})
    put_job(cluster, "laid-aside", {"replicas": 2}, suspend=True)

    result = elasticdl("simulate", "--on", "kubernetes", "--write-snapshot", tmp_path / "s.json")

    assert result.exit_code == 0, result.output
    assert "s.json: 2 nodes with 5 cpu for workers, 2 jobs (1 without workers)" in result.output
    written = snapshot_file.read_snapshot(tmp_path / "s.json")
    nodes = {node.name: (node.devices, node.rack) for node in written.snapshot.nodes}
    assert nodes == {"n0": (3, "zone-a"), "n1": (2, "")}
    there, awaited = written.snapshot.jobs_by_name["there"], written.snapshot.jobs_by_name["awaited"]
    assert (there.min_workers, there.rigid_size, there.max_workers, there.priority) == (3, 3, 4, 3)
    assert (dict(there.workers), there.devices, there.request) == ({"n0": 3}, 1, {"memory": 2.0**31})
    assert there.started_at == there.submitted_at and there.executed_s > 0
    assert (awaited.rigid_size, awaited.worker_count) == (2, 0)


def put_job(api: FakeApi, name: str, workers: dict[str, int], suspend: bool = False, **metadata: Any) -> None:
    spec = {"model": {"definition": "m.f"}, "workers": workers, "cluster": {"image": "i"}, "suspend": suspend}
    named = {"name": name, "namespace": "default", **metadata}
    api.create({"apiVersion": ELASTIC_JOB.api_version, "kind": ELASTIC_JOB.kind, "metadata": named, "spec": spec})


@pytest.fixture
def one_node(cluster: FakeApi) -> FakeApi:
    allocatable = {"cpu": "4", "memory": "16Gi", "example.com/slot": "4"}
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": allocatable}
    put(cluster, NODE, "n0", spec={}, status=ready)
    return cluster


ASKED = """
apiVersion: elasticdl.org/v1
kind: ElasticJob
metadata: {name: mine, annotations: {elasticdl.org/priority: "7"}}
spec:
  model: {definition: m.f}
  workers: {replicas: 2}
  cluster: {image: i, worker: {requests: {cpu: 500m, example.com/slot: 2}}}
"""


def test_an_elastic_job_manifest_can_be_asked_about(elasticdl: Run, one_node: FakeApi, tmp_path: Path) -> None:
    put_job(one_node, "there", {"replicas": 2})  # asks for no slot: other people's pod, if it had one
    (tmp_path / "mine.yaml").write_text(ASKED)

    words = ("--write-snapshot", tmp_path / "s.json", "--policy", "max-min")
    result = elasticdl("simulate", "--what-if", tmp_path / "mine.yaml", "--on", "kubernetes", *words)

    assert result.exit_code == 0, result.output
    assert "mine would start at once under max-min, with 2 workers: 2 on n0" in result.output
    assert "1 node with 4 example.com/slot for workers, 0 jobs" in result.output
    assert snapshot_file.read_snapshot(tmp_path / "s.json").unit == 2.0


def test_the_priority_option_wins_over_the_annotation(elasticdl: Run, one_node: FakeApi, tmp_path: Path) -> None:
    put_job(one_node, "there", {"replicas": 4, "min": 4, "max": 4}, annotations={PRIORITY: "5"})
    for number in range(4):
        worker(one_node, "there", number, "n0")
    document = ASKED.replace("cpu: 500m, example.com/slot: 2", "cpu: 2")
    (tmp_path / "mine.yaml").write_text(document)
    what_if = ("simulate", "--what-if", tmp_path / "mine.yaml", "--on", "kubernetes", "--policy", "max-min")

    assert "mine would start at once" in elasticdl(*what_if).output
    assert "mine would start in about" in elasticdl(*what_if, "--priority", "0").output


@pytest.mark.parametrize(
    ("text", "words", "complaint"),
    [
        (ASKED, ("--device", "nvidia.com/gpu"), "its workers request no nvidia.com/gpu"),
        (ASKED.replace("name: mine, ", ""), (), "an ElasticJob needs metadata.name"),
        ("name: mine\nmodel: {definition: m.f}\n", (), "set cluster.image"),
    ],
)
def test_a_job_that_no_scheduler_of_the_cluster_could_place_is_refused_with_the_reason(
    elasticdl: Run, one_node: FakeApi, tmp_path: Path, text: str, words: tuple[str, ...], complaint: str
) -> None:
    (tmp_path / "mine.yaml").write_text(text)

    result = elasticdl("simulate", "--what-if", tmp_path / "mine.yaml", "--on", "kubernetes", *words)

    assert result.exit_code == 2 and complaint in result.stderr
