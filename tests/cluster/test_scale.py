"""The cost per job does not grow with the number of jobs: a small `benchmarks/kube_scale.py`."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.cluster.api_load import MASTERS, OPERATOR
from tests.cluster.kube import Kube
from tests.cluster.scale import Measures, Scale

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(540)]

NODES, JOBS, WORKERS = 20, 4, 10
MEASURES = Measures(single=4, at_once=8, idle_s=5.0)


def test_jobs_start_recover_and_end_with_a_fixed_number_of_requests_per_pod(kube: Kube) -> None:
    if not kube.is_ours:
        pytest.skip("nodes of kwok are added to a cluster that was started here")
    with ExitStack() as stack:
        scale = Scale(kube, stack, NODES, WORKERS, MEASURES)

        half, full = scale.grow(JOBS // 2), scale.grow(JOBS)
        restart = scale.restart_operator()
        deleted = scale.delete(JOBS)

    # A pod, its event, its part of the journal; and what a master does once: about 30 requests.
    assert max(half.per_pod(MASTERS), full.per_pod(MASTERS)) < 8, (half.requests, full.requests)
    # A look at a job takes 13 requests; it has two, and about 15 objects are made.
    assert full.requests[OPERATOR] < 60 * full.added_jobs, full.requests
    assert full.idle_requests[MASTERS] == 0, "a master that has nothing to say says nothing"
    assert (len(full.replaced_s), len(full.at_once_s)) == (MEASURES.single, MEASURES.at_once)
    assert restart.touched == 0
    assert len(deleted) == JOBS
