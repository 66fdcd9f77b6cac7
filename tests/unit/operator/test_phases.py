from __future__ import annotations

from typing import Any

import pytest

from elasticdl.operator import job_status
from elasticdl.spec.load import resolve_elastic_job

NOW, BEFORE = "2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"


def resource(**status: Any) -> dict[str, Any]:
    spec = {"model": {"definition": "a.b.c"}, "workers": {"replicas": 3, "min": 2, "max": 4}, "cluster": {"image": "i"}}
    metadata = {"name": "mnist", "namespace": "team", "generation": 7}
    return {"metadata": metadata, "spec": spec, "status": status}


JOB = resolve_elastic_job(resource())


def master(replicas: int = 1, **status: Any) -> dict[str, Any]:
    return {"spec": {"replicas": replicas}, "status": status}


def result(phase: str) -> dict[str, Any]:
    return {"phase": phase, "reason": "no such model", "exit_code": 2, "ended_at": 1767225600.0}


@pytest.mark.parametrize(
    ("status", "around", "ended", "phase"),
    [
        ({}, master(), None, "Pending"),
        ({}, master(readyReplicas=1), None, "Running"),
        ({}, master(0), None, "Suspended"),
        ({"phase": "Running", "startedAt": BEFORE}, master(0), None, "Suspended"),
        ({"phase": "Suspended", "startedAt": BEFORE}, master(readyReplicas=1), None, "Running"),
        ({"phase": "Running"}, master(0), result("succeeded"), "Succeeded"),
        ({"phase": "Running", "startedAt": BEFORE}, master(0), result("failed"), "Failed"),
        ({"phase": "Running", "startedAt": BEFORE}, master(0), result("stopped"), "Stopped"),
        ({"phase": "Running", "startedAt": BEFORE}, master(), None, None),  # it comes back
        ({"phase": "Starting", "startedAt": BEFORE}, master(readyReplicas=1), None, None),  # it speaks for itself
        ({"phase": "Stopped", "startedAt": BEFORE}, master(0), result("stopped"), None),
        ({"phase": "Succeeded", "startedAt": BEFORE}, None, None, None),
    ],
)
def test_the_operator_says_what_the_master_cannot(
    status: dict[str, Any], around: dict[str, Any] | None, ended: dict[str, Any] | None, phase: str | None
) -> None:
    said = job_status.status_change(
        resource(**status), JOB, around, [job_status.accepted_condition()], NOW, result=ended
    )

    assert said.get("phase") == phase


def test_a_failure_has_the_words_and_the_time_of_the_master() -> None:
    said = job_status.status_change(resource(phase="Running"), JOB, master(0), [], NOW, result=result("failed"))

    assert (said["reason"], said["finishedAt"]) == ("no such model", BEFORE)
    (finished,) = [one for one in said["conditions"] if one["type"] == "Finished"]
    assert (finished["status"], finished["reason"]) == ("True", "Failed")


def test_a_spec_that_is_wrong_is_invalid_with_the_reason() -> None:
    said = job_status.status_change(resource(), None, None, [job_status.refused_condition("model: is missing")], NOW)

    assert (said["phase"], said["reason"]) == ("Invalid", "model: is missing")


def test_a_job_that_waits_shows_its_wish_and_can_be_selected() -> None:
    said = job_status.status_change(resource(), JOB, master(), [job_status.accepted_condition()], NOW)

    assert said["workersText"] == "0/3 (2-4)"
    assert said["workers"] == {"ready": 0, "wanted": 3, "min": 2, "max": 4}
    assert said["selector"] == "elasticdl.org/job=mnist,elasticdl.org/role=worker"


def test_what_stands_there_already_is_not_written_again() -> None:
    first = job_status.status_change(resource(), JOB, master(), [job_status.accepted_condition()], BEFORE)

    assert job_status.status_change(resource(**first), JOB, master(), [job_status.accepted_condition()], NOW) == {}


def test_a_condition_keeps_the_time_of_its_last_change() -> None:
    before = job_status.merge_conditions([], [job_status.accepted_condition(), job_status.followed_condition()], BEFORE)

    after = job_status.merge_conditions(
        before, [job_status.accepted_condition(), job_status.unfollowed_condition("plan.epochs")], NOW
    )

    assert [(one["type"], one["status"], one["lastTransitionTime"]) for one in after] == [
        ("Accepted", "True", BEFORE),
        ("Followed", "False", NOW),
    ]


def test_the_last_word_of_a_condition_counts_and_keeps_its_time() -> None:
    said = [job_status.followed_condition(), job_status.unfollowed_condition("the Secret is gone")]
    before = job_status.merge_conditions([], said, BEFORE)

    assert [one["status"] for one in before] == ["False"]
    assert job_status.merge_conditions(before, said, NOW) == before
