"""Records in columns equal the original records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elasticdl.sim.interface import AllocationSpan, JobRecord
from elasticdl.sim.results.outcome import JobRecords

SECONDS = st.floats(0, 1e9)
COUNTS = st.integers(0, 1 << 40)
SPANS = st.builds(AllocationSpan, st.text(max_size=4), SECONDS, SECONDS, COUNTS)
RECORDS = st.lists(
    st.builds(
        JobRecord,
        name=st.text(max_size=9),
        application=st.text(max_size=9),
        submitted_at=SECONDS,
        requested=COUNTS,
        priority=st.integers(-9, 9),
        started_at=st.none() | SECONDS,
        finished_at=st.none() | SECONDS,
        waited_s=SECONDS,
        attained_s=SECONDS,
        restarts=COUNTS,
        fairness=st.none() | SECONDS,
        reason=st.text(max_size=9),
        spans=st.lists(SPANS, max_size=2),
    ),
    max_size=6,
)


@given(RECORDS)
def test_records_are_read_as_they_were_written(job_records: list[JobRecord]) -> None:
    records = JobRecords(job_records)

    assert list(records) == job_records
    assert records[1:-1] == job_records[1:-1]
    assert [records[-1 - index] for index in range(len(job_records))] == job_records[::-1]


@given(RECORDS)
def test_a_column_has_a_value_for_each_record(job_records: list[JobRecord]) -> None:
    assert list(JobRecords(job_records).column("waited_s")) == [record.waited_s for record in job_records]
