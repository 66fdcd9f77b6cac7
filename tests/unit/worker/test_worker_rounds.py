"""The worker's rounds with groups that are built when the test says so."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast

import pytest

from elasticdl.collective.group import Group
from elasticdl.collective.mesh import RoundMember
from elasticdl.collective.tree import RankRange
from elasticdl.errors import RoundBroken
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.worker.rounds.membership import RoundMembership

ME = "worker-0"
PATIENCE_S = 5.0


class FakeGroup:
    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.is_aborted = self.is_closed = False

    def abort(self) -> None:
        self.is_aborted = True

    def close(self) -> None:
        self.is_aborted = self.is_closed = True


class Builder:
    """Builds a round's group when the test allows it; `built` waits until it is seen."""

    def __init__(self) -> None:
        self._outcomes: dict[int, Future[FakeGroup | str]] = {}
        self._lock = threading.Lock()
        self.asked: dict[int, tuple[int, list[RoundMember]]] = {}

    def _outcome(self, round_id: int) -> Future[FakeGroup | str]:
        with self._lock:
            return self._outcomes.setdefault(round_id, Future())

    def build(self, round_id: int, rank: int, peers: Sequence[RoundMember]) -> Group:
        self.asked[round_id] = (rank, list(peers))
        outcome = self._outcome(round_id).result()
        if isinstance(outcome, str):
            raise RoundBroken(outcome)
        return cast(Group, outcome)

    def succeed(self, round_id: int) -> FakeGroup:
        group = FakeGroup(0, 2)
        self._outcome(round_id).set_result(group)
        return group

    def fail(self, round_id: int, reason: str) -> None:
        self._outcome(round_id).set_result(reason)

    def close(self) -> None:
        """No thread may outlive its test."""
        with self._lock:
            waiting = [outcome for outcome in self._outcomes.values() if not outcome.done()]
        for outcome in waiting:
            outcome.set_result("the test is over")


@pytest.fixture
def builder() -> Iterator[Builder]:
    builder = Builder()
    yield builder
    builder.close()


@pytest.fixture
def rounds(builder: Builder) -> RoundMembership:
    return RoundMembership(ME, builder.build)


def message(round_id: int, *workers: str, forced: bool = False, donors: dict[str, str] | None = None) -> pb.Round:
    members = []
    for rank, worker in enumerate(workers):
        donor = (donors or {}).get(worker, "")
        members.append(
            pb.Member(
                worker=worker,
                peer_address=f"{worker}:1",
                first_logical_rank=2 * rank,
                logical_ranks=2,
                donor=donor,
                donor_address=f"{donor}:2" if donor else "",
            )
        )
    return pb.Round(id=round_id, members=members, forced=forced)


def until_prepared(rounds: RoundMembership, round_id: int) -> None:
    pause = threading.Event()
    for _ in range(500):
        if rounds.prepared_round_id() == round_id:
            return
        pause.wait(0.005)
    raise AssertionError(f"round {round_id} was never prepared")


def wait(rounds: RoundMembership, *, holds_state: bool = True) -> pb.Round:
    return rounds.wait_for_round(holds_state=holds_state, is_dismissed=lambda: False)


def seated(rounds: RoundMembership, builder: Builder, round_id: int, *workers: str) -> FakeGroup:
    """In a forced round."""
    rounds.add_planned(message(round_id, *workers, forced=True))
    group = builder.succeed(round_id)
    assert rounds.enter(round_id) is not None
    return group


def test_a_worker_waits_for_a_forced_round_and_enters_it(rounds: RoundMembership, builder: Builder) -> None:
    rounds.add_planned(message(1, ME, "worker-1", forced=True))
    group = builder.succeed(1)

    assert wait(rounds).id == 1
    seat = rounds.enter(1)

    assert seat is not None
    assert (seat.id, seat.workers, seat.share) == (1, (ME, "worker-1"), RankRange(0, 2))
    assert seat.group is cast(Any, group)
    rank, peers = builder.asked[1]
    assert (rank, len(peers), peers[0]) == (0, 2, RoundMember(ME, f"{ME}:1"))


def test_a_worker_votes_for_a_planned_round_once_its_group_is_built(rounds: RoundMembership, builder: Builder) -> None:
    old = seated(rounds, builder, 1, ME)
    rounds.add_planned(message(2, ME, "worker-1"))
    assert rounds.prepared_round_id() == 0
    builder.succeed(2)
    until_prepared(rounds, 2)
    assert not old.is_aborted, "the old round goes on meanwhile"

    seat = rounds.enter(2)

    assert seat is not None
    assert seat.id == 2
    assert old.is_closed
    assert rounds.prepared_round_id() == 0


def test_a_newer_planned_round_supersedes_an_older_one(rounds: RoundMembership, builder: Builder) -> None:
    seated(rounds, builder, 1, ME)
    rounds.add_planned(message(2, ME, "worker-1"))
    unused = builder.succeed(2)
    until_prepared(rounds, 2)
    rounds.add_planned(message(3, ME, "worker-1", "worker-2"))
    assert rounds.prepared_round_id() == 0, "only the newest counts"
    builder.succeed(3)
    until_prepared(rounds, 3)

    seat = rounds.enter(3)

    assert seat is not None and seat.id == 3
    assert unused.is_closed


def test_all_may_still_enter_the_superseded_round_they_voted_for(rounds: RoundMembership, builder: Builder) -> None:
    seated(rounds, builder, 1, ME)
    rounds.add_planned(message(2, ME, "worker-1"))
    builder.succeed(2)
    until_prepared(rounds, 2)
    rounds.add_planned(message(3, ME, "worker-2"))  # came after the vote

    seat = rounds.enter(2)

    assert seat is not None and seat.id == 2
    builder.succeed(3)
    until_prepared(rounds, 3)


def test_a_forced_round_wakes_a_worker_in_an_older_round(rounds: RoundMembership, builder: Builder) -> None:
    old = seated(rounds, builder, 1, ME, "worker-1")
    rounds.add_planned(message(2, ME, "worker-1", "worker-2"))
    prepared = builder.succeed(2)
    until_prepared(rounds, 2)

    rounds.add_planned(message(3, ME, forced=True))

    assert old.is_aborted
    assert prepared.is_aborted
    with pytest.raises(RoundBroken, match="replaced by round 3"):
        rounds.enter(2)
    rounds.drop(1)
    assert wait(rounds).id == 3


def test_a_worker_without_a_place_votes_at_once_and_leaves(rounds: RoundMembership, builder: Builder) -> None:
    old = seated(rounds, builder, 1, ME, "worker-1")
    rounds.add_planned(message(2, "worker-1"))

    assert rounds.prepared_round_id() == 2
    assert rounds.enter(2) is None
    assert old.is_closed
    assert 2 not in builder.asked


def test_a_round_announced_again_after_a_reconnect_is_built_once(rounds: RoundMembership, builder: Builder) -> None:
    group = seated(rounds, builder, 4, ME)
    rounds.add_planned(message(4, ME, forced=True))
    rounds.add_planned(message(3, ME, forced=True))

    assert not group.is_aborted
    assert set(builder.asked) == {4}


def test_a_group_that_cannot_be_built_breaks_the_round_that_waits_for_it(
    rounds: RoundMembership, builder: Builder
) -> None:
    rounds.add_planned(message(1, ME, "worker-1", forced=True))
    builder.fail(1, "the other never came")

    with pytest.raises(RoundBroken, match="the other never came"):
        rounds.enter(1)


def test_a_dropped_round_is_not_waited_for_again(rounds: RoundMembership, builder: Builder) -> None:
    seated(rounds, builder, 1, ME, "worker-1")
    rounds.drop(1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait, rounds)
        rounds.add_planned(message(2, ME, forced=True))

        assert waiting.result(PATIENCE_S).id == 2


def test_a_group_built_too_late_is_closed(rounds: RoundMembership, builder: Builder) -> None:
    rounds.add_planned(message(1, ME, "worker-1", forced=True))
    rounds.drop(1)
    late = builder.succeed(1)
    pause = threading.Event()
    for _ in range(500):
        if late.is_closed:
            break
        pause.wait(0.005)

    assert late.is_closed


def test_a_newcomer_waits_for_a_round_that_brings_the_state(rounds: RoundMembership) -> None:
    rounds.add_planned(message(2, "worker-1", ME, donors={ME: "worker-1"}))

    newest = wait(rounds, holds_state=False)

    assert newest.id == 2
    assert rounds.find_donor(newest) == ("worker-1", "worker-1:2")


def test_a_worker_with_state_waits_for_a_forced_round_only(rounds: RoundMembership, builder: Builder) -> None:
    seated(rounds, builder, 1, ME, "worker-1")
    rounds.drop(1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait, rounds, holds_state=True)
        rounds.add_planned(message(2, "worker-1", ME, donors={ME: "worker-1"}))
        rounds.add_planned(message(3, ME, forced=True))

        assert waiting.result(PATIENCE_S).id == 3


def test_an_interruption_wakes_every_wait_and_raises(rounds: RoundMembership, builder: Builder) -> None:
    group = seated(rounds, builder, 1, ME, "worker-1")
    rounds.interrupt("expelled")
    assert group.is_aborted
    rounds.drop(1)
    with pytest.raises(RoundBroken, match="expelled"):
        wait(rounds)
    rounds.resume()
    rounds.add_planned(message(2, ME, forced=True))

    assert wait(rounds).id == 2


def test_a_worker_without_a_master_does_not_wait_forever(rounds: RoundMembership) -> None:
    with pytest.raises(RoundBroken, match="dismissed"):
        rounds.wait_for_round(holds_state=True, is_dismissed=lambda: True)


def test_a_worker_serves_newcomers_only_in_rounds_that_name_it_as_donor(
    rounds: RoundMembership, builder: Builder
) -> None:
    seated(rounds, builder, 1, ME, "worker-1")
    donors = {"worker-2": ME, "worker-3": "worker-1"}
    planned = message(2, ME, "worker-1", "worker-2", "worker-3", donors=donors)

    assert rounds.list_newcomers(planned) == ["worker-2"]


def test_a_new_donor_ends_a_running_state_transfer(rounds: RoundMembership) -> None:
    rounds.add_planned(message(2, "worker-1", ME, donors={ME: "worker-1"}))
    ended: list[str] = []
    rounds.follow_donor("worker-1:2", lambda: ended.append("ended"))
    rounds.add_planned(message(3, "worker-1", ME, "worker-2", donors={ME: "worker-1", "worker-2": "worker-1"}))
    assert ended == [], "the same donor: the hand-over goes on"

    rounds.add_planned(message(4, "worker-2", ME, donors={ME: "worker-2"}))

    assert ended == ["ended"]
