"""Streams with a state in a script: a worker that takes one over continues at its position."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.framework import (
    assert_equal_outcomes,
    outcomes,
    replace_worker,
    run_alone,
    start_script,
    stop_and_resume,
)
from tests.integration.job import Jobs, members

SCRIPT = Path(__file__).parent / "scripts" / "stateful_stream.py"
EACH = 3  # records of a logical rank in a step
PROBED = 2  # the first records of two streams, by which every worker finds out whether the dataset shards itself


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["0", "2"])
def test_newcomers_and_resumed_jobs_continue_streams_at_their_position(jobs: Jobs, processes: str) -> None:
    name = f"stateful-{processes}"
    job = start_script(jobs, SCRIPT, name, processes, "1:2")
    replace_worker(job, is_hurried=False)
    status = job.status()
    assert status is not None
    newcomer = members(status)["worker-2"]
    stop_and_resume(jobs, job, step=15)

    assert_equal_outcomes(job, outcomes(jobs, name), run_alone(jobs.home, SCRIPT, processes))
    places = {
        int(path.name.rpartition("-")[2]): {int(line) for line in path.read_text().splitlines()}
        for path in jobs.home.glob(f"{name}-read-*")
    }
    joined = places.pop(newcomer)
    assert not joined & set(range(PROBED, 9 * EACH)), sorted(joined)
    begun = [read for read in places.values() if 2 * EACH in read]
    resumed = [read for read in places.values() if 2 * EACH not in read]
    assert (len(begun), len(resumed)) == (2, 2)
    for read in resumed:
        assert not read & set(range(PROBED, 15 * EACH)), sorted(read)
