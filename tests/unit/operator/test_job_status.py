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
    ("status", "master_set", "result_of_master", "phase"),
    [
        ({}, master(), None, "Pending"),
        ({}, master(readyReplicas=1), None, "Running"),
        ({}, master(0), None, "Suspended"),
        ({"phase": "Running", "startedAt": BEFORE}, master(0), None, "Suspended"),
        ({"phase": "Suspended", "startedAt": BEFORE}, master(readyReplicas=1), None, "Running"),
        ({"phase": "Running"}, master(0), result("succeeded"), "Succeeded"),
        ({"phase": "Running", "startedAt": BEFORE}, master(0), result("failed"), "Failed"),
        ({"phase": "Running", "startedAt": BEFORE}, master(0), result("stopped"), "Stopped"),
        ({"phase": "Running", "startedAt": BEFORE}, master(), None, None),  # its pod is about to return
        (
            {"phase": "Starting", "startedAt": BEFORE},
            master(readyReplicas=1),
            None,
            None,
        ),  # the master writes its phase
        ({"phase": "Stopped", "startedAt": BEFORE}, master(0), result("stopped"), None),
        ({"phase": "Succeeded", "startedAt": BEFORE}, None, None, None),
    ],
)
def test_the_operator_writes_phases_that_the_master_cannot_write(
    status: dict[str, Any],
    master_set: dict[str, Any] | None,
    result_of_master: dict[str, Any] | None,
    phase: str | None,
) -> None:
    conditions = [job_status.accepted_condition()]

    change = job_status.status_change(resource(**status), JOB, master_set, conditions, NOW, result=result_of_master)

    assert change.get("phase") == phase


def test_a_failure_has_the_reason_and_the_time_that_the_master_saved() -> None:
    change = job_status.status_change(resource(phase="Running"), JOB, master(0), [], NOW, result=result("failed"))

    assert (change["reason"], change["finishedAt"]) == ("no such model", BEFORE)
    (finished,) = [condition for condition in change["conditions"] if condition["type"] == "Finished"]
    assert (finished["status"], finished["reason"]) == ("True", "Failed")


def test_a_job_whose_spec_is_not_accepted_is_invalid_with_the_reason() -> None:
    conditions = [job_status.not_accepted_condition("model: is missing")]

    change = job_status.status_change(resource(), None, None, conditions, NOW)

    assert (change["phase"], change["reason"]) == ("Invalid", "model: is missing")


def test_a_pending_job_shows_its_desired_workers_and_a_selector() -> None:
    change = job_status.status_change(resource(), JOB, master(), [job_status.accepted_condition()], NOW)

    assert change["workersText"] == "0/3 (2-4)"
    assert change["workers"] == {"ready": 0, "desired": 3, "min": 2, "max": 4}
    assert change["selector"] == "elasticdl.org/job=mnist,elasticdl.org/role=worker"


def test_a_status_that_is_up_to_date_is_not_written_again() -> None:
    first = job_status.status_change(resource(), JOB, master(), [job_status.accepted_condition()], BEFORE)

    assert job_status.status_change(resource(**first), JOB, master(), [job_status.accepted_condition()], NOW) == {}


def test_a_condition_keeps_the_time_of_its_last_transition() -> None:
    before = job_status.merge_conditions([], [job_status.accepted_condition(), job_status.applied_condition()], BEFORE)

    after = job_status.merge_conditions(
        before,
        [job_status.accepted_condition(), job_status.not_applied_condition("UnsupportedChange", "plan.epochs")],
        NOW,
    )

    assert [(condition["type"], condition["status"], condition["lastTransitionTime"]) for condition in after] == [
        ("Accepted", "True", BEFORE),
        ("SpecApplied", "False", NOW),
    ]


def test_of_two_conditions_of_one_type_the_last_counts_and_keeps_its_time() -> None:
    conditions = [
        job_status.applied_condition(),
        job_status.not_applied_condition("SecretMissing", "the Secret was deleted"),
    ]
    before = job_status.merge_conditions([], conditions, BEFORE)

    assert [condition["status"] for condition in before] == ["False"]
    assert job_status.merge_conditions(before, conditions, NOW) == before
