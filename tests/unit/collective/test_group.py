"""A group whose member is lost in the middle of a transfer: waiters are told, and nobody is stuck in what is left."""

import socket
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch

from elasticdl.collective.group import Group, open_store
from elasticdl.errors import RoundBroken

_MANY = 16_000_000  # elements: more than the sockets' buffers hold
_SOON_S = 10.0
_SLOW = 10_000_000  # bytes a second: a transfer of that many elements then takes seconds, on any machine
_SO_MAX_PACING_RATE = getattr(socket, "SO_MAX_PACING_RATE", 47)


@pytest.fixture
def pair() -> Iterator[tuple[Group, Group]]:
    store, where = open_store("127.0.0.1")
    groups: dict[int, Group] = {}

    def build(rank: int) -> None:
        groups[rank] = Group.build(1, rank, 2, where, "127.0.0.1", nccl=False, timeout_s=_SOON_S)

    threads = [threading.Thread(target=build, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield groups[0], groups[1]
    groups[0].close()
    groups[1].close()
    del store


def _slow_down(group: Group) -> None:
    """So that a transfer can be cut in its middle, however fast the machine and however late this thread."""
    for held in group._sockets:
        held.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, _SLOW)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)


def test_a_swap_exchanges_two_tensors(pair: tuple[Group, Group]) -> None:
    mine = [torch.full((5,), float(rank)) for rank in range(2)]
    theirs = [torch.empty(5) for _ in range(2)]
    works = [group.start_swap(mine[rank], theirs[rank]) for rank, group in enumerate(pair)]
    for group, work in zip(pair, works, strict=True):
        group.wait(work)
    assert theirs[0].tolist() == [1.0] * 5
    assert theirs[1].tolist() == [0.0] * 5


def test_a_loss_in_the_middle_of_a_transfer_ends_the_wait(pair: tuple[Group, Group]) -> None:
    survivor, lost = pair
    _slow_down(survivor)
    _slow_down(lost)
    incoming = torch.zeros(_MANY)
    work = survivor.start_swap(torch.ones(_MANY), incoming)
    other = lost.start_swap(torch.ones(_MANY), torch.empty(_MANY))
    heard: list[str] = []

    def wait() -> None:
        try:
            survivor.wait(work)
        except RoundBroken as exc:
            heard.append(str(exc))

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    while incoming[0] == 0 and not work.is_completed():
        pass  # until the transfer has begun
    assert not work.is_completed(), "the transfer was over before it could be cut: it is too small"
    lost.abort()
    survivor.abort()  # as the session's thread does when the next round is planned
    waiter.join(_SOON_S)
    assert heard, "the waiter is stuck"
    with pytest.raises(RoundBroken):
        lost.wait(other)


def test_closing_never_waits_for_a_transfer_that_cannot_end(pair: tuple[Group, Group]) -> None:
    survivor, lost = pair
    _slow_down(survivor)
    _slow_down(lost)
    incoming = torch.zeros(_MANY)
    survivor.start_swap(torch.ones(_MANY), incoming)
    lost.start_swap(torch.ones(_MANY), torch.empty(_MANY))
    while incoming[0] == 0:
        pass
    closing = threading.Thread(target=lambda: (lost.close(), survivor.close()), daemon=True)
    closing.start()
    closing.join(_SOON_S)
    assert not closing.is_alive()


class _Late:
    """An operation that ends just after the wait for it gave up."""

    def __init__(self, failure: str) -> None:
        self._failure = failure

    def is_completed(self) -> bool:
        return True

    def wait(self, timeout: timedelta | None = None) -> None:
        if timeout is not None:
            raise RuntimeError("Operation timed out!")
        if self._failure:
            raise RuntimeError(self._failure)


def test_an_operation_that_ends_just_as_the_wait_gives_up_has_not_failed() -> None:
    group = Group(None, 0, 2, [], torch.device("cpu"))
    group.wait(_Late(""))
    with pytest.raises(RoundBroken, match="connection reset"):
        group.wait(_Late("connection reset"))


def test_a_closed_group_starts_nothing(pair: tuple[Group, Group]) -> None:
    pair[0].close()
    with pytest.raises(RoundBroken):
        pair[0].start_allreduce(torch.ones(3))
