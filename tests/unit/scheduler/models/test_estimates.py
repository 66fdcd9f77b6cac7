"""Estimates for jobs with and without measurements."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import ArrayLike

from elasticdl.scheduler.interface import BatchConfig, Floats
from elasticdl.scheduler.models.estimates import DEFAULT_DURATION_S, SpeedEstimates, candidate_sizes
from elasticdl.scheduler.snapshot import JobInfo, Snapshot
from tests.unit.scheduler.cases import Concave
from tests.unit.scheduler.policies.rules import cluster

SPEEDS = SpeedEstimates(Snapshot(0.0, (*cluster(1, 8, "a"), *cluster(4, 4, "b")), ()))


class Broken:
    def work_per_s(self, workers: ArrayLike, nodes: ArrayLike, kind: str = "") -> Floats:
        return np.array([math.nan, math.inf, -1.0])

    def batch(self, workers: int, nodes: int, kind: str = "") -> BatchConfig | None:
        return None


def test_a_job_without_measurements_does_a_unit_a_second_with_each_worker() -> None:
    assert SPEEDS.rates(JobInfo("a", 0.0), [0, 1, 7]).tolist() == [0.0, 1.0, 7.0]


def test_rates_are_those_of_the_fewest_nodes_of_the_kind() -> None:
    job = JobInfo("a", 0.0, rates=Concave(1.0, apart=0.5), devices=2)

    assert SPEEDS.rates(job, [2, 4], "b").tolist() == [2.0, 2.0]
    assert SPEEDS.rates(job, [2, 4], "a").tolist() == [2.0, 4.0]


def test_rates_that_are_no_numbers_are_nothing() -> None:
    assert SPEEDS.rates(JobInfo("a", 0.0, rates=Broken()), [1, 2, 3]).tolist() == [0.0, 0.0, 0.0]


def test_the_main_kind_is_the_largest_that_it_can_run_on() -> None:
    assert SPEEDS.main_kind(JobInfo("a", 0.0)) == "b"
    assert SPEEDS.main_kind(JobInfo("a", 0.0, kinds=("a",))) == "a"
    assert SPEEDS.main_kind(JobInfo("a", 0.0, kinds=("none",))) == ""


@pytest.mark.parametrize(
    ("job", "left"),
    [
        (JobInfo("a", 0.0, work_left=5.0, work_done=9.0), 5.0),
        (JobInfo("a", 0.0, work_done=9e9), 9e9),
        (JobInfo("a", 0.0, min_workers=2, max_workers=4), 2 * DEFAULT_DURATION_S),
    ],
)
def test_unknown_work_left_is_what_was_done_or_ten_minutes(job: JobInfo, left: float) -> None:
    assert SPEEDS.work_left(job) == left


def test_few_sizes_are_the_least_the_greatest_and_powers_of_two() -> None:
    assert candidate_sizes(JobInfo("a", 0.0, 3, 20), 18) == (3, 4, 8, 16, 18)
    assert candidate_sizes(JobInfo("a", 0.0, 1, 20, sizes=(2, 5, 11)), 99) == (2, 5, 11)
    assert candidate_sizes(JobInfo("a", 0.0, 3, 20), 2) == ()
