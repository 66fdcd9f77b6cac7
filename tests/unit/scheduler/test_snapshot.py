"""Valid jobs, and the sizes they allow."""

from __future__ import annotations

import math

import pytest

from elasticdl.errors import SpecError
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"min_workers": 0}, "expected a minimum of 1 worker or more, received 0"),
        ({"min_workers": 3, "max_workers": 2}, "expected minimum <= maximum, received minimum 3, maximum 2"),
        ({"submitted_at": -1.0}, "0 s or later, received -1.0"),
        ({"submitted_at": math.nan}, "0 s or later, received nan"),
        ({"submitted_at": math.inf}, "0 s or later, received inf"),
        ({"requested": -2}, "received -2"),
        ({"devices": 0}, "expected 1 device or more per worker, received 0"),
        ({"share": 0.0}, "above 0 and up to 1, received 0.0"),
    ],
)
def test_a_job_that_cannot_be_is_refused_in_a_sentence(fields: dict[str, float], message: str) -> None:
    with pytest.raises(SpecError, match="job a: ") as refused:
        JobInfo(**{"name": "a", "submitted_at": 0.0, **fields})  # type: ignore[arg-type]

    assert message in str(refused.value)


def test_a_node_has_no_less_than_no_devices() -> None:
    with pytest.raises(SpecError, match="node n: expected 0 devices or more, received -1"):
        NodeInfo("n", -1)


def test_sizes_are_those_between_minimum_and_maximum() -> None:
    job = JobInfo("a", 0.0, min_workers=2, max_workers=8, sizes=(8, 1, 4, 16))

    assert job.min_size == 4
    assert job.sizes_up_to(100) == (4, 8)
    assert [job.max_size_up_to(limit) for limit in (3, 4, 7, 9)] == [0, 4, 4, 8]
    assert [job.allows_size(size) for size in (1, 2, 4, 16)] == [False, False, True, False]


def test_without_sizes_all_between_are_allowed() -> None:
    job = JobInfo("a", 0.0, min_workers=2, max_workers=4)

    assert (job.min_size, job.sizes_up_to(3), job.max_size_up_to(1), job.max_size_up_to(9)) == (2, (2, 3), 0, 4)


def test_a_rigid_job_has_the_size_its_user_requested() -> None:
    job = JobInfo("a", 0.0, min_workers=1, max_workers=8, requested=4).as_rigid()

    assert (job.min_workers, job.max_workers, job.rigid_size) == (4, 4, 4)
