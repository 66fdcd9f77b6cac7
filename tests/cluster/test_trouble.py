"""Reasons why pods do not run or end are reported at once, with the message of the responsible component."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.job import SMALL, ClusterJob
from tests.cluster.kube import SLOT, Kube, on_this_machine, write_adjustments
from tests.integration.job import EPOCHS, RECORDS, STEPS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

NO_IMAGE = "nobody.invalid/nothing:1"
AT_ONCE_S = 30.0  # a scheduler's look, or a registry's name that nobody knows


def find_event(job: ClusterJob, kind: str, words: str) -> dict[str, Any] | None:
    events = (
        [event for event in job.events() if event["kind"] == kind and words in event["reason"]]
        if job.published()
        else []
    )
    return events[0] if events else None


def test_a_worker_that_ran_out_of_memory_is_replaced_with_more(kube: Kube, tmp_path: Path) -> None:
    job = ClusterJob(kube, "hungry", tmp_path)
    job.train(
        1, "--model_def=hungry.forward", f"--model_params=slow={job.slow};megabytes=800", "--max_workers=1",
        "--worker_resource_request=cpu=50m,memory=600Mi", "--max_memory=2Gi",
    )  # fmt: skip

    result = job.result()

    assert (result["phase"], result["step"], result["workers_failed"]) == ("succeeded", STEPS, 0), job.story()
    raised = find_event(job, "memory-raised", "worker pods get 900Mi from now on, 600Mi was not enough")
    lost = find_event(job, "worker-lost", "out of memory")
    assert raised and lost, job.events()
    limits = {
        name: pod["spec"]["containers"][0]["resources"]["limits"]["memory"] for name, pod in job.pods("worker").items()
    }
    assert limits[f"{job.name}-worker-0"] == "600Mi" and limits[f"{job.name}-worker-1"] == "900Mi"
    seen = kube.kubectl("describe", "statefulset", f"{job.name}-master")
    assert "MemoryRaised" in seen, seen
    job.delete()


def test_a_missing_image_is_reported_at_once(kube: Kube, tmp_path: Path) -> None:
    job = ClusterJob(kube, "imageless", tmp_path)
    job.train(1, f"--image_name={NO_IMAGE}")

    def reason() -> str:
        status = job.status()
        assert status["phase"] == "pending"
        return status["reason"] if "ImagePull" in status["reason"] else ""

    assert NO_IMAGE in job.wait(reason, "a word about the image", AT_ONCE_S)
    job.delete()


def test_a_missing_image_of_workers_is_an_event_of_the_job(kube: Kube, tmp_path: Path) -> None:
    job = ClusterJob(kube, "blind", tmp_path)
    adjusted = on_this_machine()
    adjusted["worker_pod"]["spec"]["containers"][0]["image"] = NO_IMAGE
    tmp_path.mkdir(exist_ok=True)
    job.train(1, f"--cluster_spec={write_adjustments(tmp_path / 'blind-2.yaml', adjusted)}")

    waits = job.wait(lambda: find_event(job, "worker-delayed", "ImagePull"), "a word about the image", AT_ONCE_S)

    assert NO_IMAGE in waits["reason"]
    job.delete()


def test_workers_that_do_not_fit_are_reported_with_the_message_of_the_scheduler(kube: Kube, tmp_path: Path) -> None:
    job = ClusterJob(kube, "crowded", tmp_path)
    # Three slots each: one worker to a node, and none left for the third.
    job.train(3, f"--worker_resource_request={SMALL},{SLOT}=3", "--min_workers=1", slow=True)

    waits = job.wait(
        lambda: find_event(job, "worker-delayed", f"Insufficient {SLOT}"), "a word about the third", AT_ONCE_S
    )
    members = job.wait_members(2, step=2)
    assert waits["replica"] not in members
    assert re.search(r"0/\d+ nodes are available", waits["reason"])
    job.hurry()

    result = job.result()
    assert (result["phase"], result["records"]) == ("succeeded", EPOCHS * RECORDS)
    job.delete()
