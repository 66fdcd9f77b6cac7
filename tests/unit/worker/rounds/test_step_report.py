from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.collective.squared_norms import SquaredNorms
from elasticdl.worker.rounds.step_report import LEFT_LOOP, OwnReport, StepReportLayout


def add_tails(layout: StepReportLayout, tails: list[torch.Tensor]) -> torch.Tensor:
    return sum(tails, torch.zeros(layout.length))


def write_tail(
    layout: StepReportLayout,
    losses: dict[int, float],
    records: int,
    rank: int,
    vote: int,
    *,
    stop: bool = False,
    **fields: Any,
) -> torch.Tensor:
    buffer = torch.full((layout.length,), 99.0)
    loss_tensors = {logical_rank: torch.tensor(loss) for logical_rank, loss in losses.items()}
    layout.write(buffer, rank, OwnReport(loss_tensors, records, vote, stop, **fields))
    return buffer


def squares(values: dict[int, float]) -> SquaredNorms:
    norms = SquaredNorms()
    norms.by_rank, norms.parts = {rank: torch.tensor(value) for rank, value in values.items()}, len(values)
    return norms


@given(st.lists(st.tuples(st.floats(-1e6, 1e6, width=32), st.integers(0, 1 << 20)), min_size=1, max_size=8))
def test_every_slot_arrives_as_it_was_written(members: list[tuple[float, int]]) -> None:
    layout = StepReportLayout(len(members))
    report = layout.read(
        add_tails(
            layout, [write_tail(layout, {rank: loss}, 3, rank, vote) for rank, (loss, vote) in enumerate(members)]
        )
    )

    assert report.losses == tuple(loss for loss, _ in members)
    assert report.votes == tuple(vote for _, vote in members)
    assert report.records == 3 * len(members)
    assert not report.must_stop


def test_all_members_learn_that_one_stops() -> None:
    layout = StepReportLayout(3)

    assert layout.read(
        add_tails(layout, [write_tail(layout, {}, 1, 0, 0), write_tail(layout, {}, 1, 1, 0, stop=True)])
    ).must_stop


def test_all_members_learn_that_one_stops_because_its_master_is_gone() -> None:
    layout = StepReportLayout(3)
    stops = [write_tail(layout, {}, 1, 0, 0), write_tail(layout, {}, 1, 1, 0, stop=True)]

    assert not layout.read(add_tails(layout, stops)).is_orphaned
    assert layout.read(
        add_tails(layout, [*stops, write_tail(layout, {}, 1, 2, 0, stop=True, is_orphaned=True)])
    ).is_orphaned


def test_a_round_is_agreed_when_all_members_vote_for_it() -> None:
    layout = StepReportLayout(4)
    votes = [write_tail(layout, {}, 1, rank, 7) for rank in range(2)]

    assert layout.read(add_tails(layout, votes)).agreed_round(2) == 7
    assert layout.read(add_tails(layout, votes)).agreed_round(3) == 0, "the third has not voted"


@pytest.mark.parametrize("other", [0, 6, 8])
def test_a_round_is_not_agreed_while_one_votes_otherwise(other: int) -> None:
    layout = StepReportLayout(2)

    assert (
        layout.read(
            add_tails(layout, [write_tail(layout, {}, 1, 0, 7), write_tail(layout, {}, 1, 1, other)])
        ).agreed_round(2)
        == 0
    )


def test_a_loss_that_is_not_finite_stays_in_its_slot() -> None:
    layout = StepReportLayout(3)
    report = layout.read(
        add_tails(layout, [write_tail(layout, {0: 1.0}, 2, 0, 0), write_tail(layout, {1: math.nan, 2: 2.0}, 2, 1, 0)])
    )

    assert [math.isfinite(loss) for loss in report.losses] == [True, False, True]
    assert report.records == 4


def test_squares_arrive_by_logical_rank_even_if_a_rank_has_no_records() -> None:
    layout = StepReportLayout(4)
    members = [write_tail(layout, {}, 1, 0, 0, squares=squares({0: 0.5, 2: 1e-30})), write_tail(layout, {}, 1, 1, 0)]
    members.append(write_tail(layout, {}, 1, 2, 0, squares=squares({3: 7.25})))

    report = layout.read(add_tails(layout, members))

    assert report.squares == (0.5, 0.0, pytest.approx(1e-30), 7.25)
    assert report.noise_parts == 3


def test_the_first_member_decides_the_number_of_batches_per_update() -> None:
    layout = StepReportLayout(3)
    report = layout.read(
        add_tails(layout, [write_tail(layout, {}, 1, rank, 0, batch_change=(rank + 4, rank + 2)) for rank in range(3)])
    )

    assert (report.batch_change, report.batch_scale) == (4, 2)


def test_the_first_member_decides_the_factor_of_the_learning_rate() -> None:
    layout = StepReportLayout(3)
    report = layout.read(
        add_tails(layout, [write_tail(layout, {}, 1, rank, 0, rate_factor=0.5 + rank) for rank in range(3)])
    )

    assert report.rate_factor == 0.5


def test_digests_and_touched_parameters_of_all_members_arrive() -> None:
    layout = StepReportLayout(4, parameters=3)
    members = [
        write_tail(layout, {}, 2, 0, 0, digest=(1 << 24) - 1, touched=b"\x01\x00\x00"),
        write_tail(layout, {}, 2, 1, 0, digest=12345, touched=b"\x01\x00\x01"),
    ]

    report = layout.read(add_tails(layout, members))

    assert report.digests[:2] == ((1 << 24) - 1, 12345)
    assert report.touched == (True, False, True)


def test_all_members_learn_which_left_its_loop_and_no_round_is_agreed() -> None:
    layout = StepReportLayout(4)

    report = layout.read(add_tails(layout, [write_tail(layout, {}, 2, 0, 7), write_tail(layout, {}, 2, 1, LEFT_LOOP)]))

    assert report.leavers == [1]
    assert report.agreed_round(2) == 0
    assert layout.read(write_tail(layout, {}, 2, 0, LEFT_LOOP)).agreed_round(1) == 0
