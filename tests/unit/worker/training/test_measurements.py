from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.worker.training.step import Measurements

ENTRIES = st.lists(
    st.tuples(
        st.integers(0, 7), st.sampled_from("ab"), st.integers(1, 9), st.floats(-1e6, 1e6, allow_nan=False, width=32)
    ),
    max_size=16,
    unique_by=lambda entry: entry[:2],
)


@given(ENTRIES, st.integers(0, 7))
def test_averages_do_not_depend_on_how_measurements_are_split(
    entries: list[tuple[int, str, int, float]], border: int
) -> None:
    first = Measurements(entry for entry in entries if entry[0] < border)
    second = Measurements(entry for entry in entries if entry[0] >= border)

    gathered = Measurements.decode([second.encode(), first.encode()])

    assert gathered.averages() == Measurements(entries).averages()


def test_a_mean_is_weighted_by_records() -> None:
    measurements = Measurements()
    measurements.add(0, "accuracy", 3, torch.tensor(1.0))
    measurements.add(1, "accuracy", 1, 0.0)

    assert measurements.averages() == {"accuracy": 0.75}


def test_no_measurements_take_no_bytes() -> None:
    assert Measurements().encode() == b"" and Measurements.decode([b""]).averages() == {}
