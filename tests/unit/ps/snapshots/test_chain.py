"""Which file counts for which slot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.errors import CheckpointCorrupt
from elasticdl.ps.slots import SLOTS
from elasticdl.ps.snapshots.chain import (
    MAX_CHAIN,
    SnapshotChain,
    SnapshotFile,
    choose_full_slots,
    pack_slots,
    unpack_slots,
)
from elasticdl.ps.tables.applied_pushes import slot_mask
from elasticdl.spec import PsId

ALL, NONE = slot_mask(range(SLOTS)), slot_mask([])
EVEN, ODD = slot_mask(range(0, SLOTS, 2)), slot_mask(range(1, SLOTS, 2))


def file(ps: str, number: int, owned: np.ndarray, full: np.ndarray) -> SnapshotFile:
    return SnapshotFile(
        name=f"{ps}-{number}", ps=PsId(ps), number=number, step=10 * number, owned_slots=pack_slots(owned),
        full_slots=pack_slots(full), rows=1, applied_pushes=1,
    )  # fmt: skip


@given(st.sets(st.integers(0, SLOTS - 1)))
def test_packed_slots_are_unpacked(slots: set[int]) -> None:
    assert (unpack_slots(pack_slots(slot_mask(sorted(slots)))) == slot_mask(sorted(slots))).all()


def test_text_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected 1024 slots\. Received: 8"):
        unpack_slots("ff")


def test_slots_that_a_ps_did_not_own_before_are_full() -> None:
    written = choose_full_slots(ALL, EVEN, number=3)

    assert (written >= ODD).all() and not (written >= EVEN).all()
    assert (choose_full_slots(EVEN, None, number=3) == EVEN).all()


def test_every_slot_is_full_once_in_each_cycle_and_equally_many_at_a_time() -> None:
    masks = [choose_full_slots(ALL, ALL, number) for number in range(20, 20 + MAX_CHAIN)]

    assert (np.sum(masks, axis=0) == 1).all()
    assert {int(mask.sum()) for mask in masks} == {SLOTS // MAX_CHAIN}


def test_files_of_a_previous_owner_do_not_count_for_slots_that_moved() -> None:
    first = SnapshotChain.extend(None, "a", 10, (file("ps-0", 1, ALL, ALL),))
    moved = SnapshotChain.extend(first, "b", 20, (file("ps-0", 2, EVEN, NONE), file("ps-1", 2, ODD, ODD)))

    assert [(snapshot_file.name, pack_slots(slots)) for snapshot_file, slots in moved.effective_files()] == [
        ("ps-0-1", pack_slots(EVEN)),
        ("ps-0-2", pack_slots(EVEN)),
        ("ps-1-2", pack_slots(ODD)),
    ]
    assert moved.base_ids == ("a",)


def test_a_file_that_counts_for_no_slot_is_left_out() -> None:
    first = SnapshotChain.extend(None, "a", 10, (file("ps-0", 1, EVEN, EVEN), file("ps-1", 1, ODD, ODD)))
    second = SnapshotChain.extend(first, "b", 20, (file("ps-0", 2, EVEN, EVEN), file("ps-1", 2, ODD, NONE)))

    assert [snapshot_file.name for snapshot_file in second.files] == ["ps-1-1", "ps-0-2", "ps-1-2"]


def test_a_chain_is_never_longer_than_the_limit() -> None:
    chain = SnapshotChain.extend(None, "1", 10, (file("ps-0", 1, ALL, ALL),))
    for number in range(2, 40):
        chain = SnapshotChain.extend(
            chain, str(number), 10 * number, (file("ps-0", number, ALL, choose_full_slots(ALL, ALL, number)),)
        )
        assert len(chain.files) <= MAX_CHAIN
    assert SnapshotChain.parse(chain.model_dump_json(), "here") == chain


def test_the_error_names_a_slot_without_rows() -> None:
    chain = SnapshotChain(snapshot_id="a", number=1, step=10, files=(file("ps-0", 1, ALL, EVEN),))

    with pytest.raises(CheckpointCorrupt, match="snapshot of step 10: no file has the rows of slot 1"):
        chain.effective_files()


def test_a_slot_that_is_full_in_the_file_of_a_ps_that_does_not_own_it_has_no_rows() -> None:
    all_slots, third = slot_mask(range(SLOTS)), slot_mask([3])
    chain = SnapshotChain(
        snapshot_id="a", number=1, step=5, files=(file("ps-0", 1, all_slots & ~third & 1, all_slots),)
    )

    with pytest.raises(CheckpointCorrupt, match="no file has the rows of slot 3"):
        chain.effective_files()


def test_text_that_is_not_an_index_is_refused() -> None:
    with pytest.raises(CheckpointCorrupt, match=r"index\.json is not the index of a snapshot"):
        SnapshotChain.parse('{"snapshot_id": 3}', "index.json")
