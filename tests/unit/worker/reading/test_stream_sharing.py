"""The positions of streams, shared with all members of a round."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
import torch

from elasticdl.collective.tree import RankRange
from elasticdl.worker.reading.stream_requests import StreamPositions, share_stream_positions
from elasticdl.worker.reading.streams import StreamPosition
from elasticdl.worker.training.user_state import UserState

EPOCH_STEPS = 1000


class ThreadGroup:
    """Members of a group that are threads of this process."""

    def __init__(self, rank: int, parts: dict[int, torch.Tensor], meeting: threading.Barrier) -> None:
        self.rank, self.size = rank, meeting.parties
        self._parts, self._meeting = parts, meeting

    def allgather(self, out: torch.Tensor, part: torch.Tensor) -> None:
        self._parts[self.rank] = part
        self._meeting.wait(5.0)
        out.copy_(torch.cat([self._parts[rank] for rank in range(self.size)]))
        self._meeting.wait(5.0)


def share(members: list[StreamPositions]) -> None:
    """Member i has computed logical rank i."""
    parts: dict[int, torch.Tensor] = {}
    meeting = threading.Barrier(len(members))
    groups: list[Any] = [ThreadGroup(rank, parts, meeting) for rank in range(len(members))]
    threads = [
        threading.Thread(target=share_stream_positions, args=(positions, RankRange(rank, 1), groups[rank]))
        for rank, positions in enumerate(members)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def reading(rank: int, steps: range, state: Any = None) -> StreamPositions:
    positions = StreamPositions(EPOCH_STEPS)
    for step in steps:
        positions.add(rank, StreamPosition(step, state or {"place": step, "more": (torch.tensor([step]), None)}))
    return positions


def test_all_members_know_the_position_of_every_stream() -> None:
    members = [reading(rank, range(1, 8 + rank)) for rank in range(3)]

    share(members)

    for positions in members:
        for rank in range(3):
            position = positions.find_newest(rank, 9)
            assert position is not None and position.step == position.state["place"] == 7 + rank
            assert torch.equal(position.state["more"][0], torch.tensor([7 + rank]))


def test_the_newest_of_own_and_loaded_positions_is_used() -> None:
    positions = reading(0, range(1, 8))

    positions.load_state_dict({"0": [[3, "three"], [9, "nine"]], "1": [[4, "four"]]})

    own = positions.find_newest(0, 8)
    assert own is not None and own.step == own.state["place"] == 7
    assert positions.find_newest(0, 9) == StreamPosition(9, "nine")
    assert positions.find_newest(1, 3) is None and positions.find_newest(1, 5) == StreamPosition(4, "four")


def test_a_state_that_cannot_be_saved_stays_with_its_worker(caplog: pytest.LogCaptureFixture) -> None:
    odd = reading(0, range(1, 4), state={"open": object()})
    members = [odd, reading(1, range(1, 4))]

    with caplog.at_level(logging.WARNING):
        share(members)

    assert odd.find_newest(0, 3) is not None and members[1].find_newest(0, 3) is None
    assert odd.find_newest(1, 3) is not None
    assert len(caplog.records) == 1 and "cannot store a object" in caplog.text


def test_positions_are_saved_with_the_scripts_state_and_not_compared() -> None:
    ours, theirs = UserState(), UserState()
    ours.streams, theirs.streams = reading(0, range(1, 4)), StreamPositions(EPOCH_STEPS)
    tensors: dict[str, torch.Tensor] = {}

    missing = theirs.restore(ours.capture(tensors), tensors)

    assert not missing and not theirs.objects
    assert theirs.streams.find_newest(0, 3) is not None
    assert UserState().restore(ours.capture(tensors), tensors) == []
