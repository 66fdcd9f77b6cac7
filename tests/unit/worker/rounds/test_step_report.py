from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.collective.squared_norms import SquaredNorms
from elasticdl.worker.rounds.step_report import LEFT_LOOP, StepReportLayout


def sum_of(tail: StepReportLayout, written: list[torch.Tensor]) -> torch.Tensor:
    total = torch.zeros(tail.length)
    for one in written:
        total += one
    return total


def written(
    tail: StepReportLayout,
    losses: dict[int, float],
    records: int,
    rank: int,
    vote: int,
    *,
    stop: bool = False,
    **more: Any,
) -> torch.Tensor:
    buffer = torch.full((tail.length,), 99.0)
    tail.write(buffer, {r: torch.tensor(v) for r, v in losses.items()}, records, rank, vote, stop=stop, **more)
    return buffer


def squares(values: dict[int, float]) -> SquaredNorms:
    made = SquaredNorms()
    made.by_rank, made.parts = {rank: torch.tensor(value) for rank, value in values.items()}, len(values)
    return made


@given(st.lists(st.tuples(st.floats(-1e6, 1e6, width=32), st.integers(0, 1 << 20)), min_size=1, max_size=8))
def test_every_slot_arrives_as_it_was_written(members: list[tuple[float, int]]) -> None:
    tail = StepReportLayout(len(members))
    heard = tail.read(
        sum_of(tail, [written(tail, {rank: loss}, 3, rank, vote) for rank, (loss, vote) in enumerate(members)])
    )

    assert heard.losses == tuple(loss for loss, _ in members)
    assert heard.votes == tuple(vote for _, vote in members)
    assert heard.records == 3 * len(members)
    assert not heard.must_stop


def test_one_member_that_stops_is_heard_by_all() -> None:
    tail = StepReportLayout(3)

    assert tail.read(sum_of(tail, [written(tail, {}, 1, 0, 0), written(tail, {}, 1, 1, 0, stop=True)])).must_stop


def test_all_hear_whether_one_stops_because_its_master_is_away_for_good() -> None:
    tail = StepReportLayout(3)
    stops = [written(tail, {}, 1, 0, 0), written(tail, {}, 1, 1, 0, stop=True)]

    assert not tail.read(sum_of(tail, stops)).is_orphaned
    assert tail.read(sum_of(tail, [*stops, written(tail, {}, 1, 2, 0, stop=True, orphaned=True)])).is_orphaned


def test_a_round_is_agreed_when_all_members_vote_for_it() -> None:
    tail = StepReportLayout(4)
    votes = [written(tail, {}, 1, rank, 7) for rank in range(2)]

    assert tail.read(sum_of(tail, votes)).agreed_round(2) == 7
    assert tail.read(sum_of(tail, votes)).agreed_round(3) == 0, "the third has not voted"


@pytest.mark.parametrize("other", [0, 6, 8])
def test_a_round_is_not_agreed_while_one_votes_otherwise(other: int) -> None:
    tail = StepReportLayout(2)

    assert tail.read(sum_of(tail, [written(tail, {}, 1, 0, 7), written(tail, {}, 1, 1, other)])).agreed_round(2) == 0


def test_a_loss_that_is_not_finite_stays_in_its_slot() -> None:
    tail = StepReportLayout(3)
    heard = tail.read(sum_of(tail, [written(tail, {0: 1.0}, 2, 0, 0), written(tail, {1: math.nan, 2: 2.0}, 2, 1, 0)]))

    assert [math.isfinite(loss) for loss in heard.losses] == [True, False, True]
    assert heard.records == 4


def test_squares_arrive_by_logical_rank_also_where_one_has_no_records() -> None:
    tail = StepReportLayout(4)
    members = [written(tail, {}, 1, 0, 0, squares=squares({0: 0.5, 2: 1e-30})), written(tail, {}, 1, 1, 0)]
    members.append(written(tail, {}, 1, 2, 0, squares=squares({3: 7.25})))

    heard = tail.read(sum_of(tail, members))

    assert heard.squares == (0.5, 0.0, pytest.approx(1e-30), 7.25)
    assert heard.noise_parts == 3


def test_the_first_member_says_how_many_batches_make_an_update() -> None:
    tail = StepReportLayout(3)
    heard = tail.read(sum_of(tail, [written(tail, {}, 1, rank, 0, batch=(rank + 4, rank + 2)) for rank in range(3)]))

    assert (heard.batch_change, heard.batch_scale) == (4, 2)


def test_the_first_member_says_what_the_learning_rate_is_multiplied_with() -> None:
    tail = StepReportLayout(3)
    heard = tail.read(sum_of(tail, [written(tail, {}, 1, rank, 0, rate_factor=0.5 + rank) for rank in range(3)]))

    assert heard.rate_factor == 0.5


def test_digests_and_touched_parameters_of_all_members_arrive() -> None:
    tail = StepReportLayout(4, parameters=3)
    members = [
        written(tail, {}, 2, 0, 0, digest=(1 << 24) - 1, touched=b"\x01\x00\x00"),
        written(tail, {}, 2, 1, 0, digest=12345, touched=b"\x01\x00\x01"),
    ]

    heard = tail.read(sum_of(tail, members))

    assert heard.digests[:2] == ((1 << 24) - 1, 12345)
    assert heard.touched == (True, False, True)


def test_who_left_its_loop_is_heard_and_no_round_is_agreed() -> None:
    tail = StepReportLayout(4)

    heard = tail.read(sum_of(tail, [written(tail, {}, 2, 0, 7), written(tail, {}, 2, 1, LEFT_LOOP)]))

    assert heard.leavers == [1]
    assert heard.agreed_round(2) == 0
    assert tail.read(written(tail, {}, 2, 0, LEFT_LOOP)).agreed_round(1) == 0
