"""ElasticJobs with kubectl, on a cluster where the operator runs from the chart and its image."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import operator
from tests.cluster.elastic_job import ElasticJob
from tests.cluster.kube import Kube
from tests.integration.job import EPOCHS, RECORDS, STEPS

REASON = operator.why_not()
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900), pytest.mark.skipif(bool(REASON), reason=REASON)]

NAMESPACE = "operator-suite"
MINUTE_S = 60.0
GONE_S = 15.0  # far below the grace period of its pods, which is 35 s


@pytest.fixture(scope="module")
def installed(kube: Kube) -> Iterator[Kube]:
    with operator.serving(kube, NAMESPACE) as cluster:
        yield cluster


@pytest.fixture
def job(installed: Kube, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ElasticJob]:
    elastic_job = ElasticJob(installed, request.function.__name__.split("_")[1], tmp_path, NAMESPACE)
    yield elastic_job
    elastic_job.delete()
    elastic_job.wait(lambda: not elastic_job.remaining_objects(), "the end of everything")


def test_applied_job_succeeds_and_shows_its_progress(job: ElasticJob) -> None:
    job.apply(2, slow=True)
    job.wait(lambda: job.resource_status().get("workersText") == "2/2 (1-4)", "two workers")
    job.wait(lambda: job.resource_status().get("step", 0) >= 3, "three steps")
    row = job.row()
    assert (row["NAME"], row["PHASE"], row["WORKERS"]) == ("applied", "Running", "2/2 (1-4)")
    assert re.fullmatch(r"[1-9]\d? %", row["PROGRESS"]) and re.fullmatch(r"\d+[ms].*", row["AGE"])
    job.hurry()

    status = job.wait_phase("Succeeded")

    assert (status["step"], status["records"]) == (STEPS, EPOCHS * RECORDS)
    assert (job.output / "model.safetensors").exists()
    job.kubectl("wait", "elasticjob/applied", "--for=condition=Finished", "--timeout=30s")
    row = job.row()
    assert (row["PHASE"], row["PROGRESS"]) == ("Succeeded", "100 %")
    conditions = {condition["type"]: condition["status"] for condition in job.resource_status()["conditions"]}
    assert conditions == {"Accepted": "True", "SpecApplied": "True", "Suspended": "False", "Finished": "True"}


def test_scaled_job_trains_with_the_desired_workers_and_reports_them(job: ElasticJob) -> None:
    job.apply(2, slow=True)
    job.wait_members(2, step=1)

    job.kubectl("scale", "elasticjob/scaled", "--replicas=3")

    job.wait_members(3)
    job.wait(lambda: job.row()["WORKERS"] == "3/3 (1-4)", "three in the list")
    job.kubectl("scale", "elasticjob/scaled", "--replicas=1")
    job.wait_members(1)
    job.hurry()
    assert job.wait_phase("Succeeded")["step"] == STEPS

    expected = (
        r"Normal +Created .* elasticdl-operator +Created the master of the job",
        r"Normal +WorkerJoined .* elasticdl-master +worker-0 ",
        r"Normal +WorkerJoined .* elasticdl-master +worker-1 ",
        r"Normal +Scaled .* elasticdl-master +from 2 to 3 workers",
        r"Normal +WorkerLaunched .* elasticdl-master +worker-2",
        r"Normal +Scaled .* elasticdl-master +from 3 to 1 workers",
        r"Normal +WorkerLeft .* elasticdl-master +worker-1 ",
        r"Normal +WorkerLeft .* elasticdl-master +worker-2 ",
        r"Normal +Finished .* elasticdl-master +all steps are done",
    )
    job.kubectl("wait", "elasticjob/scaled", "--for=condition=Finished", "--timeout=30s")
    described = events(job)  # the master's last word comes before its end
    assert not [line for line in expected if not re.search(line, described)], described


def test_asked_by_the_command_line_to_scale_the_resource_and_later_masters_have_the_new_number(job: ElasticJob) -> None:
    here = ("--on=kubernetes", f"--namespace={NAMESPACE}")
    job.apply(1, slow=True)
    job.wait_members(1, step=1)

    output = job.kube.elasticdl("scale", job.name, "--workers=2", *here).stdout

    assert output == "scaling from 1 to 2 workers\n"
    resource = json.loads(job.kubectl("get", "elasticjob", job.name, "--output=json"))
    assert resource["spec"]["workers"]["replicas"] == 2
    job.wait_members(2)
    job.kubectl("delete", "pod", f"{job.name}-master-0", "--wait=false")
    job.wait(lambda: [event for event in job.events() if event["kind"] == "master-restarted"], "the next master")
    job.wait_members(2)
    assert not [event for event in job.events() if event["kind"] == "scaled" and "from 2" in event["reason"]]
    job.hurry()
    job.wait_phase("Succeeded")


def test_pending_job_is_listed_without_a_master(job: ElasticJob) -> None:
    # Only the JobSpec can tell: a batch that is smaller than the logical ranks.
    job.apply(1, plan={"epochs": 1, "global_batch_size": 2, "logical_ranks": 4})
    job.wait_phase("Invalid")

    here = ("--on=kubernetes", f"--namespace={NAMESPACE}")
    listed = {entry["name"]: entry for entry in json.loads(job.kube.elasticdl("jobs", "--json", *here).stdout)}
    output = job.kube.elasticdl("status", job.name, *here).stdout

    assert listed[job.name]["phase"] == "invalid"
    assert "logical ranks" in listed[job.name]["reason"] and "invalid" in output
    job.kube.elasticdl("stop", job.name, "--delete", *here)


def events(job: ElasticJob) -> str:
    """The last part of what `kubectl describe` says."""
    return job.kubectl("describe", f"elasticjob/{job.name}").partition("\nEvents:")[2]


def test_alone_a_job_trains_on_and_a_new_operator_changes_nothing(job: ElasticJob) -> None:
    job.apply(2, slow=True)
    job.wait_members(2, step=1)
    before = job.uids()
    (gone,) = operator.pods(job.kube)

    job.kube.kubectl("delete", "pod", gone, f"--namespace={operator.NAMESPACE}")
    operator.ready(job.kube)
    job.kubectl("annotate", "elasticjob/alone", "seen=again")
    step = job.resource_status()["step"]
    job.wait(lambda: job.resource_status()["step"] > step + 2, "two steps more")

    assert gone not in operator.pods(job.kube)
    assert job.uids() == before
    job.hurry()
    job.wait_phase("Succeeded")
    job.kubectl("wait", "elasticjob/alone", "--for=condition=Finished", "--timeout=30s")


def test_deleted_while_it_trains_a_job_leaves_nothing(job: ElasticJob) -> None:
    job.apply(2, slow=True)
    job.wait_members(2, step=1)
    assert len(job.remaining_objects()) > 8, "what it consists of"

    deleted_at = time.monotonic()
    job.kubectl("delete", "elasticjob/deleted", "--timeout=60s")

    running = {name for name, pod in job.pods().items() if pod["status"]["phase"] in ("Pending", "Running")}
    assert not running, "it goes after its pods"
    job.wait(lambda: not job.remaining_objects(), "nothing left", MINUTE_S)
    assert time.monotonic() - deleted_at < GONE_S, "nobody waits for a master that will not come"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"workers": {"replicas": 2, "min": 3, "max": 1}}, "min is above max; write them as min <= replicas <= max"),
        (
            {"strategy": "AllreduceStrategy", "ps": {"replicas": 1}},
            "AllreduceStrategy has no ps: leave ps.replicas out",
        ),
        ({"wrkers": {"replicas": 2}}, 'unknown field "spec.wrkers"'),
    ],
)
def test_refused_job_is_an_error_with_the_reason(job: ElasticJob, change: dict[str, object], words: str) -> None:
    document = json.dumps(job.document(2, **change))

    done = subprocess.run(
        ["kubectl", "apply", "--filename=-"],
        env=job.kube.environ, input=document, capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert done.returncode != 0
    assert words in done.stderr
    assert not job.remaining_objects()


def test_suspended_job_has_no_pods_and_resumes_from_its_checkpoint(job: ElasticJob) -> None:
    checkpoint = {"directory": str(job.shared_directory / "checkpoints"), "every_steps": 5, "resume": True}
    job.apply(2, slow=True, checkpoint=checkpoint)
    job.wait_members(2, step=8)

    job.kubectl("patch", "elasticjob/suspended", "--type=merge", '--patch={"spec": {"suspend": true}}')
    job.wait_phase("Suspended")
    job.wait(lambda: not job.pods(), "no pods")
    assert job.row()["WORKERS"] == "0/2 (1-4)"

    job.kubectl("patch", "elasticjob/suspended", "--type=merge", '--patch={"spec": {"suspend": false}}')
    job.wait_phase("Running")
    job.wait_members(2)
    assert job.resource_status()["step"] >= 5
    job.hurry()
    assert job.wait_phase("Succeeded")["step"] == STEPS
    described = events(job)
    assert re.search(r"Normal +Suspended ", described) and re.search(r"Normal +Resumed ", described), described
