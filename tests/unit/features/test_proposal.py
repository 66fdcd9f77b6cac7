"""Which treatment is proposed for which column, and that the file of them can be read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.features import features_file, proposal
from elasticdl.features.statistics import ColumnKind, ColumnStatistics, Statistics

ROWS = 100_000
LONG = tuple(float(value) for value in np.geomspace(1, 1e6, 201))
EVEN = tuple(float(value) for value in np.linspace(-5, 5, 201))
IDS = tuple(float(value) for value in np.linspace(1, 4e9, 201))


def column(kind: ColumnKind = ColumnKind.TEXT, **fields: Any) -> ColumnStatistics:
    return ColumnStatistics(kind=kind, **({"missing": 0, "distinct": 1000} | fields))


def number(quantiles: tuple[float, ...], **fields: Any) -> ColumnStatistics:
    points = np.array(quantiles)
    figures = {"mean": float(points.mean()), "standard_deviation": float(points.std())}
    return column(
        ColumnKind.NUMBER, minimum=quantiles[0], maximum=quantiles[-1], quantiles=quantiles, **(figures | fields)
    )


def proposed(column_statistics: ColumnStatistics, name: str = "c", sampled: float = 1.0) -> proposal.Proposal:
    statistics = Statistics(
        source="clicks", rows=ROWS, label="label", sample_fraction=sampled, columns={name: column_statistics}
    )
    proposal_of_column = proposal.propose_transforms(statistics)[name]
    return proposal.Proposal(
        tuple(text for text in proposal_of_column.transforms if text != "target_encoding()"), proposal_of_column.reason
    )


WORDS: dict[str, Any] = {"values": ("a", "b"), "counts": (60_000, 30_000)}


@pytest.mark.parametrize(
    ("column_statistics", "treatments", "words"),
    [
        (column(missing=ROWS, distinct=0), ("drop",), "all values are missing"),
        (column(distinct=1), ("drop",), "constant"),
        (column(distinct=1, missing=10), ("missing_indicator()",), "one value or none"),
        (column(distinct=ROWS), ("drop",), "identifies the row"),
        (number(IDS, distinct=ROWS, is_integer=True), ("drop",), "identifies the row"),
        (column(**WORDS), ("index_lookup(min_count=10)",), "90.0% of rows"),
        (column(distinct=80_000, values=("a",), counts=(9,)), ("hashing(num_bins=262144)",), "only 0%"),
        (column(distinct=90_000, is_truncated=True, **WORDS), ("hashing(num_bins=262144)",), "too many"),
        (column(exceptions=3, exception_examples=("n/a",), **WORDS), ("index_lookup(min_count=10)",), "MIXED.*'n/a'"),
        (
            column(separator="|", max_length=80),
            ('sequence(sep="|", max_length=50, num_bins=2048)',),
            "lists of up to 80",
        ),
        (
            number(LONG, standard_deviation=5e4, is_integer=True),
            ("normalizer(log=true)", "log_square()"),
            "a long tail",
        ),
        (number(LONG, standard_deviation=5e4), ("normalizer(log=true)", "discretization(quantiles=20)"), "a long tail"),
        (number(EVEN), ("normalizer()", "discretization(quantiles=20)"), "without a long tail"),
        (number(EVEN, distinct=11, is_integer=True, **WORDS), ("index_lookup(min_count=1)",), "codes"),
        (number(IDS, distinct=5000, is_integer=True, **WORDS), ("index_lookup(min_count=10)",), "look like ids"),
        (
            column(ColumnKind.DATE, minimum=0.0, maximum=4e7, quantiles=(0.0, 3600.0, 4e7)),
            ("date_parts(parts=[year, month, weekday, hour])",),
            "dates",
        ),
    ],
)  # fmt: skip
def test_each_column_gets_what_suits_it(
    column_statistics: ColumnStatistics, treatments: tuple[str, ...], words: str
) -> None:
    proposed_transforms = proposed(column_statistics)

    assert proposed_transforms.transforms == treatments
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(proposed_transforms.reason)


def test_a_sample_does_not_show_that_every_row_has_its_own_value() -> None:
    assert proposed(column(distinct=ROWS), sampled=0.1).transforms == ("hashing(num_bins=262144)",)


def test_a_name_may_mark_a_column_of_ids() -> None:
    counts = number(tuple(float(n) for n in range(201)), distinct=201, is_integer=True, **WORDS)

    assert proposed(counts, "shop_id").transforms == ("index_lookup(min_count=10)",)
    assert proposed(counts, "visits").transforms == ("normalizer()", "discretization(quantiles=20)")


def test_ids_are_also_target_encoded_if_there_are_enough_rows() -> None:
    def treatments(rows: int, label: str | None) -> tuple[str, ...]:
        statistics = Statistics(source="x", rows=rows, label=label, columns={"c": column(**WORDS)})
        return proposal.propose_transforms(statistics)["c"].transforms

    assert treatments(ROWS, "label")[1:] == ("target_encoding()",)
    assert treatments(ROWS, None)[1:] == treatments(1000, "label")[1:] == ()


def test_a_sequence_of_values_of_another_column_shares_its_ids() -> None:
    def treatment(*values: str) -> str:
        seen = column(separator="|", max_length=5, distinct=2, values=values, counts=(9, 9))
        statistics = Statistics(source="x", rows=ROWS, columns={"seen": seen, "the thing": column(**WORDS)})
        return proposal.propose_transforms(statistics)["seen"].transforms[0]

    assert treatment("b", "a") == 'sequence(sep="|", max_length=5, like="the thing")'
    assert treatment("b", "z") == 'sequence(sep="|", max_length=5, num_bins=16)'


def test_larger_data_has_a_larger_min_count() -> None:
    assert [proposal.choose_min_count(rows, 1) for rows in (1000, 3 * 10**4, 5 * 10**4, 10**7)] == [2, 3, 5, 10]
    assert proposal.choose_min_count(1000, 5) == 5


@given(st.lists(st.text(min_size=1).filter(lambda name: name != "label"), min_size=1, max_size=5, unique=True))
def test_the_proposed_file_can_be_read_whatever_the_columns_are_called(names: list[str]) -> None:
    kinds = [
        column(**WORDS),
        column(separator='"', max_length=3),
        number(LONG, standard_deviation=5e4),
        column(exceptions=1, exception_examples=("\n#",)),
    ]
    columns = {name: kinds[index % len(kinds)] for index, name in enumerate(names)}
    statistics = Statistics(source="a\nb: c", rows=ROWS, label="label", columns=columns)
    proposals = proposal.propose_transforms(statistics)

    read = features_file.parse_features_file(
        features_file.render_features_file(statistics, proposals, "statistics.json"), "features.yaml"
    )

    assert list(read.columns) == names
    assert (read.label, read.statistics) == ("label", "statistics.json")
    read.check_against(statistics, "features.yaml")
