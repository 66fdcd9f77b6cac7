from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.collective.backlog import Backlog

SLACK = 100


def view(count: int, fill: int = 0) -> memoryview:
    return memoryview(bytearray([fill]) * count)


def send_all(backlog: Backlog) -> bytes:
    sent = b""
    while (piece := backlog.next_piece()) is not None:
        sent += piece
        backlog.mark_sent(len(piece))
    return sent


def test_an_image_and_its_updates_are_sent_in_order() -> None:
    backlog = Backlog(SLACK)
    assert backlog.needs_state and not backlog.is_following

    backlog.put_state([view(3, 1), view(0), view(2, 2)])
    assert backlog.put_update([view(2, 3)])

    assert send_all(backlog) == bytes([1, 1, 1, 2, 2, 3, 3])
    assert backlog.is_empty and backlog.is_following and not backlog.needs_state


def test_updates_beyond_the_bound_are_dropped_and_an_image_follows_only_after_the_one_under_way() -> None:
    backlog = Backlog(SLACK)
    backlog.put_state([view(500, 1), view(500, 1)])
    assert backlog.next_piece() is not None
    backlog.mark_sent(10)
    updates = [backlog.put_update([view(60, 2)]) for _ in range(3)]

    assert updates == [True, True, False]
    assert backlog.unsent_bytes == 990, "only what is left of the state"
    assert not backlog.is_following and not backlog.needs_state
    assert send_all(backlog) == bytes([1]) * 990
    assert backlog.needs_state


def test_a_connection_as_fast_as_the_updates_never_reaches_the_bound() -> None:
    backlog = Backlog(slack_bytes=0)
    state, update = [100] * 30, 1000
    backlog.put_state([view(count) for count in state])
    for _ in range(20):
        assert backlog.put_update([view(update)])
        to_send = update
        while to_send and (piece := backlog.next_piece()) is not None:
            count = min(to_send, len(piece))
            backlog.mark_sent(count)
            to_send -= count


def test_a_frame_that_was_started_is_completed_even_if_later_ones_are_dropped() -> None:
    backlog = Backlog(SLACK)
    backlog.put_state([view(10)])
    send_all(backlog)
    backlog.put_update([view(4, 5), view(4, 6)])
    backlog.put_update([view(4, 7)])
    assert backlog.next_piece() is not None
    backlog.mark_sent(1)
    backlog.restart()

    assert not backlog.needs_state
    assert send_all(backlog) == bytes([5, 5, 5, 6, 6, 6, 6])
    assert backlog.needs_state


def test_the_update_that_names_the_round_is_always_accepted() -> None:
    backlog = Backlog(slack_bytes=0)
    backlog.put_state([view(10)])
    assert backlog.put_update([view(10)])

    assert backlog.put_update([view(10)], is_last=True)
    assert backlog.unsent_bytes == 30


def test_a_second_state_queued_behind_the_first_is_an_error() -> None:
    backlog = Backlog(SLACK)
    backlog.put_state([view(10)])

    with pytest.raises(AssertionError, match="second copy"):
        backlog.put_state([view(10)])


# Events: an update is made (its size), the newcomer reads bytes, an update could not be passed on.
_happenings = st.lists(
    st.one_of(
        st.tuples(st.just("update"), st.integers(1, 300)),
        st.tuples(st.just("take"), st.integers(1, 400)),
        st.tuples(st.just("miss"), st.just(0)),
    ),
    max_size=120,
)


@given(_happenings, st.lists(st.integers(1, 200), min_size=1, max_size=6), st.integers(0, 300))
def test_the_bound_always_holds_and_the_newcomer_gets_a_gapless_sequence(
    happenings: list[tuple[str, int]], state: list[int], slack: int
) -> None:
    backlog = Backlog(slack)
    step = 0
    taken: list[tuple[bool, int]] = []  # (is it a state, of which step)
    under_way: list[tuple[memoryview, bool, int]] = []  # the last piece of each frame that was put

    def put(pieces: list[memoryview], is_state: bool) -> None:
        under_way.append((pieces[-1], is_state, step))

    for happening, size in happenings:
        if happening == "update":
            step += 1
            if backlog.needs_state:
                pieces = [view(count) for count in state]
                backlog.put_state(pieces)
                put(pieces, is_state=True)
            elif backlog.is_following:
                pieces = [view(size)]
                if backlog.put_update(pieces):
                    put(pieces, is_state=False)
        elif happening == "miss":
            backlog.restart()
        elif (piece := backlog.next_piece()) is not None:
            count = min(size, len(piece))
            backlog.mark_sent(count)
            if count == len(piece):
                ends = [frame for frame in under_way if frame[0].obj is piece.obj]
                taken += [(is_state, frame_step) for _, is_state, frame_step in ends]
        assert backlog.unsent_bytes <= backlog.max_bytes
        assert backlog.max_bytes <= sum(state) + 300 + slack
        assert not (backlog.needs_state and backlog.unsent_bytes)

    reached = None
    for is_state, frame_step in taken:
        assert is_state or reached == frame_step - 1, "an update of a state that the newcomer does not have"
        reached = frame_step
