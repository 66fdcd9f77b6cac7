"""The resources of a pod, how its memory grows, and its priority."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.launcher.kubernetes import manifest
from tests.unit.launcher.jobs import SMALL, container, job, worker


def test_memory_grows_by_half_up_to_three_times() -> None:
    spec = job(SMALL, worker={"requests": {"memory": "2Gi"}})

    limits = [manifest.memory_limit(spec, "worker", raises) for raises in range(5)]

    assert limits == ["2Gi", "3072Mi", "4608Mi", "6144Mi", "6144Mi"]
    assert manifest.memory_limit(spec, "worker", 10**6) == "6144Mi"


def test_memory_and_its_limit_grow_up_to_the_maximum_of_the_user() -> None:
    role = {"requests": {"memory": "4Gi"}, "limits": {"memory": "6Gi"}}
    spec = job(SMALL, worker=role, max_memory="10Gi")

    resources = [container(worker(spec, memory_raises=raises))["resources"] for raises in range(4)]

    assert [resource["limits"]["memory"] for resource in resources] == ["6Gi", "9216Mi", "10240Mi", "10240Mi"]
    assert [resource["requests"]["memory"] for resource in resources] == ["4Gi", "6144Mi", "9216Mi", "10240Mi"]


def test_a_maximum_below_the_request_does_not_reduce_it() -> None:
    assert manifest.memory_limit(job(SMALL, max_memory="1Gi"), "worker", 3) == "2Gi"


def test_without_a_request_there_is_no_limit_to_raise() -> None:
    spec = job(SMALL, worker={"requests": {}})

    assert manifest.memory_limit(spec, "worker", 2) == ""
    assert container(worker(spec, memory_raises=2))["resources"] == {"requests": {}, "limits": {}}


@pytest.mark.parametrize(
    ("priority", "is_high", "expected"),
    [
        ("", None, None),
        ("high", None, "elasticdl-high"),
        ("low", True, "elasticdl-low"),
        ("ours", None, "ours"),
        ("0.5", True, "elasticdl-high"),
        ("0.5", False, "elasticdl-low"),
        ("0.5", None, "elasticdl-low"),
    ],
)
def test_a_priority_becomes_a_priority_class(priority: str, is_high: bool | None, expected: str | None) -> None:
    pod = worker(job(SMALL, worker={"priority": priority}), is_high=is_high)

    assert pod["spec"].get("priorityClassName") == expected


@given(st.floats(0, 1), st.integers(1, 1000))
def test_the_share_of_high_priority_workers_exceeds_the_given_one_by_less_than_a_worker(
    share: float, desired: int
) -> None:
    high = 0
    for _ in range(desired):
        high += manifest.is_high_priority(share, desired, high)

    assert share * desired - 1e-6 <= high < share * desired + 1
