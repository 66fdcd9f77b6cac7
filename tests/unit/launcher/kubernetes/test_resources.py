"""What a pod may use, how that grows, and how important it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.launcher.kubernetes import manifest
from tests.unit.launcher.jobs import SMALL, container, job, worker


def test_memory_grows_by_half_up_to_thrice() -> None:
    spec = job(SMALL, worker={"requests": {"memory": "2Gi"}})

    found = [manifest.memory_limit(spec, "worker", raises) for raises in range(5)]

    assert found == ["2Gi", "3072Mi", "4608Mi", "6144Mi", "6144Mi"]
    assert manifest.memory_limit(spec, "worker", 10**6) == "6144Mi"


def test_memory_grows_up_to_what_the_person_allows_and_takes_its_limit_along() -> None:
    role = {"requests": {"memory": "4Gi"}, "limits": {"memory": "6Gi"}}
    spec = job(SMALL, worker=role, max_memory="10Gi")

    found = [container(worker(spec, raises=raises))["resources"] for raises in range(4)]

    assert [one["limits"]["memory"] for one in found] == ["6Gi", "9216Mi", "10240Mi", "10240Mi"]
    assert [one["requests"]["memory"] for one in found] == ["4Gi", "6144Mi", "9216Mi", "10240Mi"]


def test_a_most_below_what_was_asked_for_takes_nothing_away() -> None:
    assert manifest.memory_limit(job(SMALL, max_memory="1Gi"), "worker", 3) == "2Gi"


def test_without_a_request_there_is_no_limit_to_raise() -> None:
    spec = job(SMALL, worker={"requests": {}})

    assert manifest.memory_limit(spec, "worker", 2) == ""
    assert container(worker(spec, raises=2))["resources"] == {"requests": {}, "limits": {}}


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
def test_a_priority_becomes_a_class(priority: str, is_high: bool | None, expected: str | None) -> None:
    pod = worker(job(SMALL, worker={"priority": priority}), is_high=is_high)

    assert pod["spec"].get("priorityClassName") == expected


@given(st.floats(0, 1), st.integers(1, 1000))
def test_the_share_of_high_workers_is_at_least_what_was_asked_for_and_by_less_than_one_more(
    share: float, wish: int
) -> None:
    high = 0
    for _ in range(wish):
        high += manifest.is_high_priority(share, wish, high)

    assert share * wish - 1e-6 <= high < share * wish + 1
