"""A group that loses a member during a transfer: waiters get an error, and nothing is left behind."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from elasticdl.collective.group import Group
from elasticdl.collective.mesh import EarlyConnections, Mesh, RoundMember, connect_mesh
from elasticdl.errors import RoundBroken
from tests.unit.collective.members import (
    CREDENTIALS,
    HERE,
    SOON_S,
    Identities,
    build_groups,
    build_meshes,
    issue_identities,
)
from tests.waiting import until

_MANY = 16_000_000  # elements: more than the sockets' buffers hold


@pytest.fixture(params=["plain", "tls"])
def identities(request: pytest.FixtureRequest, tmp_path: Path) -> Identities:
    return issue_identities(tmp_path) if request.param == "tls" else lambda replica: None


@pytest.fixture
def pair(identities: Identities) -> Iterator[list[Group]]:
    groups = build_groups(2, identities)
    yield groups
    for group in groups:
        group.close()


def test_a_swap_exchanges_two_tensors(pair: list[Group]) -> None:
    mine = [torch.full((5,), float(rank)) for rank in range(2)]
    theirs = [torch.empty(5) for _ in range(2)]
    works = [group.start_swap(mine[rank], theirs[rank]) for rank, group in enumerate(pair)]
    for group, work in zip(pair, works, strict=True):
        group.wait(work)
    assert theirs[0].tolist() == [1.0] * 5
    assert theirs[1].tolist() == [0.0] * 5


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_collectives_give_every_member_the_values_of_the_others(size: int, identities: Identities) -> None:
    groups = build_groups(size, identities)

    def run(group: Group) -> tuple[list[int], list[int], list[int]]:
        gathered = torch.empty(2 * size, dtype=torch.int64)
        group.allgather(gathered, torch.tensor([group.rank, -group.rank]))
        broadcast = torch.full((3,), group.rank)
        group.broadcast(broadcast, size - 1)
        # Member r gets r numbers of everyone, in messages of one.
        received = torch.full((size, group.rank), group.rank)
        sends = [(member, torch.tensor([group.rank])) for member in group.others for _ in range(member)]
        group.wait(group.start(sends, [(m, row.view(1)) for m in group.others for row in received[m]]))
        return gathered.tolist(), broadcast.tolist(), received.flatten().tolist()

    with ThreadPoolExecutor(size) as pool:
        results = list(pool.map(run, groups))
    for rank, (gathered, broadcast, received) in enumerate(results):
        assert gathered == [number for member in range(size) for number in (member, -member)]
        assert broadcast == [size - 1] * 3
        assert received == [member for member in range(size) for _ in range(rank)]
    for group in groups:
        group.close()


def test_losing_a_peer_during_a_transfer_ends_the_wait_and_leaves_the_tensor_unchanged(pair: list[Group]) -> None:
    survivor, lost = pair
    incoming = torch.zeros(_MANY)
    work = survivor.start_swap(torch.ones(_MANY), incoming)
    # The other member sends its half of the swap and never reads ours.
    lost._mesh.start([(0, memoryview(bytes(1 << 20)))], [])
    heard: list[str] = []

    def wait() -> None:
        with pytest.raises(RoundBroken) as caught:
            survivor.wait(work)
        heard.append(str(caught.value))

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    lost.abort()
    waiter.join(SOON_S)
    assert heard, "the waiter is stuck"
    before = incoming.clone()
    incoming.fill_(3.0)
    survivor.close()
    assert torch.equal(incoming, torch.full_like(before, 3.0))


def test_an_abort_wakes_a_member_whose_peer_says_nothing(pair: list[Group]) -> None:
    work = pair[0].start_swap(torch.ones(_MANY), torch.empty(_MANY))
    threading.Thread(target=pair[0].abort).start()
    with pytest.raises(RoundBroken, match="dropped"):
        pair[0].wait(work)


def test_members_with_different_operations_get_an_error(pair: list[Group]) -> None:
    first = pair[0].start_swap(torch.ones(5), torch.empty(5))
    pair[1].start_swap(torch.ones(6), torch.empty(6))
    with pytest.raises(RoundBroken, match="do not do the same"):
        pair[0].wait(first)


def test_what_a_member_sent_before_it_left_arrives(pair: list[Group]) -> None:
    sent = pair[1].start_allgather(torch.empty(2), torch.ones(1))
    until("it is sent", lambda: pair[1]._mesh._peers[0]._sent == 1)
    pair[1].close()
    received = torch.zeros(2)
    pair[0]._mesh.start([], [(1, memoryview(received[1:].numpy().data).cast("B"))]).wait()
    assert received.tolist() == [0.0, 1.0]
    with pytest.raises(RoundBroken):
        pair[1].wait(sent)


def test_large_tensors_arrive_whole(pair: list[Group]) -> None:
    generator = torch.Generator().manual_seed(1)
    mine = [torch.randn(3_000_001, generator=generator) for _ in range(2)]
    theirs = [torch.empty_like(tensor) for tensor in mine]
    works = [group.start_swap(mine[rank], theirs[rank]) for rank, group in enumerate(pair)]
    for group, work in zip(pair, works, strict=True):
        group.wait(work)
    assert torch.equal(theirs[0], mine[1])
    assert torch.equal(theirs[1], mine[0])


def test_a_closed_group_starts_nothing(pair: list[Group]) -> None:
    pair[0].close()
    with pytest.raises(RoundBroken):
        pair[0].start_swap(torch.ones(3), torch.ones(3))


def test_groups_leave_no_descriptor_and_no_thread_behind(identities: Identities) -> None:
    for group in build_groups(3, identities):
        group.close()
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(20):
        for group in build_groups(3, identities):
            group.close()
    assert len(os.listdir("/proc/self/fd")) <= before[0]
    assert threading.active_count() <= before[1]


def test_a_member_that_does_not_come_is_named() -> None:
    with pytest.raises(RoundBroken, match="worker-1 did not connect"):
        connect_mesh(
            7, 0, [RoundMember("worker-0", ""), RoundMember("worker-1", "")], CREDENTIALS, EarlyConnections(SOON_S), 0.1
        )


def test_a_member_that_cannot_be_reached_is_named() -> None:
    with socket.create_server((HERE, 0)) as listener:
        nobody = f"{HERE}:{listener.getsockname()[1]}"
    with pytest.raises(RoundBroken, match=f"worker-0 at {nobody}"):
        connect_mesh(
            7,
            1,
            [RoundMember("worker-0", nobody), RoundMember("worker-1", "")],
            CREDENTIALS,
            EarlyConnections(SOON_S),
            5.0,
        )


def test_a_mesh_of_one_member_is_ready_at_once() -> None:
    (mesh,) = build_meshes(1)
    assert isinstance(mesh, Mesh)
    mesh.start([], []).wait()
    mesh.close()
