"""ElasticJobs that share four slots of a real cluster under `elasticdl scheduler --on kubernetes`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticdl.scheduler.kubernetes.annotations import PRIORITY, REQUESTED_WORKERS, SCHEDULING_REASON
from tests.cluster import host_operator
from tests.cluster.elastic_job import SMALL, ElasticJob
from tests.cluster.kube import SLOT, Kube
from tests.cluster.scheduler import Scheduler, account
from tests.integration.job import STEPS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

NAMESPACE = "scheduler-suite"


class ScheduledJob(ElasticJob):
    """A job each of whose workers takes a slot."""

    priority = 0

    def wait(self, poll: Callable[[], Any], description: str, patience_s: float = 400.0) -> Any:
        """Waits longer than other tests: eight workers start at the same time, on machines with two cores."""
        return super().wait(poll, description, patience_s)

    def document(self, replicas: int, **spec: Any) -> dict[str, Any]:
        document = super().document(replicas, **spec)
        worker = {"requests": {**SMALL["requests"], SLOT: "1"}}
        document["spec"]["cluster"] |= {"worker": worker}
        document["spec"]["model"]["params"]["pause_s"] = 1.0  # four workers take two minutes, unless `hurry` is called
        document["spec"]["checkpoint"] = {
            "directory": str(self.shared_directory / f"{self.name}-checkpoints"),
            "every_steps": 5,
        }
        document["metadata"]["annotations"] = {PRIORITY: str(self.priority)}
        return document

    def resource(self) -> dict[str, Any]:
        resource: dict[str, Any] = json.loads(self.kubectl("get", "elasticjob", self.name, "--output=json"))
        return resource

    def replicas(self) -> int:
        return desired_workers(self.resource())


def desired_workers(resource: dict[str, Any]) -> int:
    """0 while the job waits."""
    spec = resource["spec"]
    return 0 if spec.get("suspend") else int(spec["workers"]["replicas"])


@pytest.fixture(scope="module")
def four_slots(kube: Kube) -> Iterator[Kube]:
    if not kube.is_ours:
        pytest.skip("slots can be set only on a cluster of our own")
    with host_operator.running(kube):
        kube.open_namespace(NAMESPACE)
        kube.starter("slots", "node-2", "0")
        yield kube
        kube.starter("slots", "node-2", "4")
        kube.kubectl("delete", "namespace", NAMESPACE, "--timeout=100s")


@pytest.fixture
def scheduler(four_slots: Kube, tmp_path: Path) -> Iterator[Kube]:
    """Runs a scheduler with the rights that `--yaml` prints."""
    with account(four_slots, NAMESPACE, tmp_path) as kubeconfig:
        process = Scheduler(four_slots, NAMESPACE, kubeconfig, tmp_path / "scheduler.log")
        yield four_slots
        exit_code = process.end()
    print(process.log_text)
    assert exit_code == 0 and "orbidden" not in process.log_text


@pytest.fixture
def make(scheduler: Kube, tmp_path: Path) -> Iterator[Callable[[str], ScheduledJob]]:
    jobs: list[ScheduledJob] = []

    def make_job(name: str) -> ScheduledJob:
        jobs.append(ScheduledJob(scheduler, name, tmp_path, NAMESPACE))
        return jobs[-1]

    yield make_job
    for job in jobs:
        job.delete()
    for job in jobs:
        job.wait(lambda job=job: not job.remaining_objects(), "the end of everything")  # type: ignore[misc]


def test_the_first_job_shrinks_for_the_second_and_grows_back(make: Callable[[str], ScheduledJob]) -> None:
    first, second = make("first"), make("second")
    first.apply(4, slow=True)
    first.wait_members(4, step=1)
    second.apply(4, slow=True)

    second.wait(lambda: second.resource_status().get("step", 0) >= 1, "its first step")
    # Of one moment: the scheduler may decide again at any time.
    resources = {
        resource["metadata"]["name"]: resource
        for resource in first.kube.get("elasticjobs", f"--namespace={NAMESPACE}")["items"]
    }
    desired = {name: desired_workers(resource) for name, resource in resources.items()}
    assert 1 <= desired["first"] < 4 and sum(desired.values()) <= 4
    assert f"{desired['first']} of 4 workers" in resources["first"]["metadata"]["annotations"][SCHEDULING_REASON]
    status = first.status()
    assert status["phase"] == "running" and "of 4 workers" in status["reason"]

    second.hurry()
    second.wait_phase("Succeeded")
    first.wait_members(4)
    first.hurry()
    assert first.wait_phase("Succeeded")["step"] == STEPS


def test_a_job_of_greater_priority_takes_what_it_needs_and_the_other_resumes_later(
    make: Callable[[str], ScheduledJob],
) -> None:
    low, high = make("low"), make("high")
    high.priority = 5
    low.apply(2, slow=True)
    low.wait_members(4, step=6)
    high.apply(4, slow=True, workers={"replicas": 4, "min": 4, "max": 4, "threads": 1})

    high.wait_members(4, step=1)
    assert low.replicas() == 0
    low.wait_phase("Suspended")
    status = low.status()
    assert status["phase"] == "suspended" and "waits" in status["reason"]

    high.hurry()
    high.wait_phase("Succeeded")
    low.wait_members(4)
    low.hurry()
    assert low.wait_phase("Succeeded")["step"] == STEPS
    assert low.resource()["metadata"]["annotations"][REQUESTED_WORKERS] == "2"


def test_what_if_shows_what_the_scheduler_would_do_on_this_cluster(
    make: Callable[[str], ScheduledJob], tmp_path: Path
) -> None:
    here, four = make("here"), {"replicas": 4, "min": 4, "max": 4, "threads": 1}
    here.priority = 1
    here.apply(4, slow=True, workers=four)
    here.wait_members(4, step=1)
    queued = make("queued")
    queued.apply(4, slow=True, workers=four)
    queued.wait(lambda: queued.replicas() == 0, "its suspension")
    new_job = ScheduledJob(here.kube, "asked", tmp_path, NAMESPACE)
    (tmp_path / "asked.json").write_text(json.dumps(new_job.document(2)))

    def what_if(*words: str) -> str:
        options = ("--on=kubernetes", f"--namespace={NAMESPACE}")
        return str(here.kube.elasticdl("simulate", *options, *words).stdout)

    snapshot = tmp_path / "cluster.json"
    written = what_if(f"--device={SLOT}", f"--write-snapshot={snapshot}")
    assert f"2 nodes with 4 {SLOT} for workers, 2 jobs (1 without workers)" in written
    jobs = {job["name"]: job for job in json.loads(snapshot.read_text())["jobs"]}
    assert jobs["here"]["workers"] == {"node-1": 4} and jobs["here"]["work_left"] < STEPS
    assert jobs["queued"]["workers"] == {} and jobs["queued"]["min_workers"] == 4

    job = f"--what-if={tmp_path / 'asked.json'}"
    later = what_if(job)
    assert "asked would start in about" in later and "node-1" in later
    guessed = later.partition("a guess, since it is not known how long these jobs take: ")[2].strip().split(", ")
    assert "queued" in guessed, "it has never run"
    at_once = what_if(job, "--priority=10", f"--json={tmp_path / 'answer.json'}")
    assert "asked would start at once under goodput, with 4 workers: 4 on node-1" in at_once
    assert "here: 0 workers instead of 4" in at_once
    assert json.loads((tmp_path / "answer.json").read_text())["goodput"]["wait_s"] == 0.0
    of_file = here.kube.elasticdl("simulate", job, f"--snapshot={snapshot}", "--priority=10").stdout
    assert of_file == at_once, "a snapshot answers as its cluster did"
