from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.master.machine.events import RankAssignment
from elasticdl.master.strategies import rounds
from elasticdl.spec import WorkerId

A, B, C = WorkerId("a"), WorkerId("b"), WorkerId("c")


def situation(
    holders: Sequence[rounds.StateHolder] = (),
    newcomers: Sequence[WorkerId] = (),
    *,
    newest: Sequence[WorkerId] | None = None,
    forced: bool = False,
    entered: bool = True,
    waited_s: float = 0.0,
    expected: int = 0,
    min_workers: int = 1,
    broken_for_s: float | None = None,
) -> rounds.RoundSituation:
    assignments = tuple(RankAssignment(worker, rank, 1, "") for rank, worker in enumerate(newest or ()))
    round_ = None if newest is None else rounds.Round(1, assignments, forced, "", 0.0)
    return rounds.RoundSituation(
        round_, entered, holders, newcomers, waited_s, expected, min_workers, 4, broken_for_s,
        regroup_s=0.3, start_timeout_s=1.0,
    )  # fmt: skip


def present(worker: WorkerId, *, leaving: bool = False) -> rounds.StateHolder:
    return rounds.StateHolder(worker, True, leaving)


def absent(worker: WorkerId) -> rounds.StateHolder:
    return rounds.StateHolder(worker, False, False)


def test_a_job_starts_when_all_expected_workers_are_ready() -> None:
    change = rounds.choose_round(situation(newcomers=[A, B], expected=2))

    assert change == rounds.RoundChange((A, B), True, "start of the job")


def test_a_job_waits_a_moment_for_its_other_workers_but_not_for_ever() -> None:
    assert rounds.choose_round(situation(newcomers=[A], expected=2, waited_s=0.9)) is None
    assert rounds.choose_round(situation(newcomers=[A], expected=2, waited_s=1.0)) is not None


def test_a_job_does_not_start_below_its_minimum() -> None:
    assert rounds.choose_round(situation(newcomers=[A], expected=1, min_workers=2, waited_s=9.0)) is None


def test_a_newcomer_joins_by_a_planned_round() -> None:
    change = rounds.choose_round(situation([present(A)], [B], newest=[A]))

    assert change == rounds.RoundChange((A, B), False, "b joins")


def test_a_lost_member_forces_a_round_of_the_survivors_without_newcomers() -> None:
    change = rounds.choose_round(situation([present(A), absent(B)], [C], newest=[A, B]))

    assert change == rounds.RoundChange((A,), True, "without b")


def test_newcomers_take_part_in_a_forced_round_when_the_survivors_are_too_few() -> None:
    change = rounds.choose_round(situation([present(A), absent(B)], [C], newest=[A, B], min_workers=2))

    assert change is not None
    assert change.workers == (A, C)
    assert change.is_forced


def test_too_few_survivors_wait_for_newcomers() -> None:
    assert rounds.choose_round(situation([present(A), absent(B)], newest=[A, B], min_workers=2)) is None


def test_a_leaving_member_is_only_in_a_forced_round_if_it_alone_holds_the_state() -> None:
    others = rounds.choose_round(situation([present(A, leaving=True), present(B), absent(C)], newest=[A, B, C]))
    alone = rounds.choose_round(situation([present(A, leaving=True), absent(B)], [C], newest=[A, B]))

    assert others is not None and others.workers == (B,)
    assert alone is not None and alone.workers == (A,)


def test_the_last_member_leaves_once_a_newcomer_can_take_over() -> None:
    waiting = rounds.choose_round(situation([present(A, leaving=True)], newest=[A]))
    change = rounds.choose_round(situation([present(A, leaving=True)], [B], newest=[A]))

    assert waiting is None
    assert change == rounds.RoundChange((B,), False, "b joins; a leaves")


def test_all_members_lost_start_again_from_a_checkpoint() -> None:
    change = rounds.choose_round(situation([absent(A), absent(B)], [C], newest=[A, B], expected=1))

    assert change is not None
    assert (change.workers, change.is_forced) == ((C,), True)


def test_a_failed_round_whose_members_seem_alive_is_formed_again_after_a_while() -> None:
    early = rounds.choose_round(situation([present(A), present(B)], newest=[A, B], broken_for_s=0.1))
    late = rounds.choose_round(situation([present(A), present(B)], newest=[A, B], broken_for_s=0.3))

    assert early is None
    assert late is not None and late.workers == (A, B) and late.is_forced


def test_no_worker_joins_while_a_forced_round_is_formed() -> None:
    assert rounds.choose_round(situation([present(A)], [B], newest=[A], forced=True, entered=False)) is None


def test_a_newer_planned_round_supersedes_one_that_is_not_entered() -> None:
    change = rounds.choose_round(situation([present(A)], [B, C], newest=[A, B], entered=False))

    assert change is not None and change.workers == (A, B, C)


def test_the_round_is_planned_again_without_a_newcomer_that_failed() -> None:
    change = rounds.choose_round(situation([present(A)], newest=[A, B], entered=False))

    assert change == rounds.RoundChange((A,), False, "b leaves")


@pytest.mark.parametrize(
    ("ranks", "compute_s", "expected"),
    [
        (8, [None, None, None], [3, 3, 2]),
        (8, [1.0, 1.0], [4, 4]),
        (8, [1.0, 3.0], [6, 2]),
        (4, [1.0, 100.0], [3, 1]),
        (3, [1.0, 1.0, 1.0], [1, 1, 1]),
        (4, [2.0, None], [2, 2]),
    ],
)
def test_faster_workers_get_more_logical_ranks(ranks: int, compute_s: list[float | None], expected: list[int]) -> None:
    assert rounds.split_ranks(ranks, compute_s) == expected


@given(st.lists(st.floats(0.001, 100.0), min_size=1, max_size=6), st.integers(0, 20))
def test_a_split_gives_every_worker_a_rank_and_assigns_all_ranks(compute_s: list[float], more: int) -> None:
    counts = rounds.split_ranks(len(compute_s) + more, compute_s)

    assert sum(counts) == len(compute_s) + more
    assert min(counts) >= 1
    for index, seconds in enumerate(compute_s):  # moving one rank to any other worker makes no step shorter
        longest = max(count * s for count, s in zip(counts, compute_s, strict=True))
        if counts[index] > 1 and counts[index] * seconds == longest:
            others = [i for i in range(len(counts)) if i != index]
            assert all((counts[i] + 1) * compute_s[i] >= longest * (1 - 1e-9) for i in others)


def test_a_delayed_newcomer_is_not_waited_for_but_may_start_a_round() -> None:
    joining = situation([present(A)], [B, C], newest=[A])._replace(delayed=[B])
    alone = situation(newcomers=[B], expected=1)._replace(delayed=[B])

    assert rounds.choose_round(joining) == rounds.RoundChange((A, C), False, "c joins")
    assert rounds.choose_round(alone) == rounds.RoundChange((B,), True, "start of the job")


def test_logical_ranks_are_contiguous_and_newcomers_have_donors() -> None:
    assignments = rounds.assign_ranks([A, B, C], [1, 2, 1], {C: A})

    assert [(member.first_logical_rank, member.logical_ranks, member.donor) for member in assignments] == [
        (0, 1, ""),
        (1, 2, ""),
        (3, 1, "a"),
    ]


def test_a_split_is_unbalanced_if_a_fifth_of_the_step_could_be_saved() -> None:
    assert rounds.is_unbalanced([4, 4], [1.0, 3.0])
    assert not rounds.is_unbalanced([4, 4], [1.0, 1.2])
    assert not rounds.is_unbalanced([4, 4], [1.0, None])
