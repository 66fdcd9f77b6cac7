"""Records in columns are the records that were given."""

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
def test_what_is_given_comes_back(given_: list[JobRecord]) -> None:
    records = JobRecords(given_)

    assert list(records) == given_
    assert records[1:-1] == given_[1:-1]
    assert [records[-1 - index] for index in range(len(given_))] == given_[::-1]


@given(RECORDS)
def test_a_column_has_a_number_of_each(given_: list[JobRecord]) -> None:
    assert list(JobRecords(given_).column("waited_s")) == [record.waited_s for record in given_]
