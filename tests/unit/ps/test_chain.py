"""Which file counts for which slot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.errors import CheckpointCorrupt
from elasticdl.ps.chain import LONGEST, Chain, CutFile, pack, unpack, whole
from elasticdl.ps.marks import flags
from elasticdl.ps.slots import SLOTS
from elasticdl.spec import PsId

ALL, NONE = flags(range(SLOTS)), flags([])
EVEN, ODD = flags(range(0, SLOTS, 2)), flags(range(1, SLOTS, 2))


def file(ps: str, number: int, owned: np.ndarray, whole: np.ndarray) -> CutFile:  # type: ignore[type-arg]
    return CutFile(
        name=f"{ps}-{number}", ps=PsId(ps), number=number, step=10 * number, owned=pack(owned), whole=pack(whole),
        rows=1, applied=1,
    )  # fmt: skip


@given(st.sets(st.integers(0, SLOTS - 1)))
def test_slots_come_back_from_text(slots: set[int]) -> None:
    assert (unpack(pack(flags(sorted(slots)))) == flags(sorted(slots))).all()


def test_text_that_is_no_slots_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected 1024 slots\. Received: 8"):
        unpack("ff")


def test_what_a_ps_did_not_own_before_is_written_whole() -> None:
    written = whole(ALL, EVEN, number=3)

    assert (written >= ODD).all() and not (written >= EVEN).all()
    assert (whole(EVEN, None, number=3) == EVEN).all()


def test_every_slot_is_written_whole_once_in_so_many_cuts_and_never_many_at_once() -> None:
    times = [whole(ALL, ALL, number) for number in range(20, 20 + LONGEST)]

    assert (np.sum(times, axis=0) == 1).all()
    assert {int(one.sum()) for one in times} == {SLOTS // LONGEST}


def test_files_of_an_owner_before_count_no_more_for_the_slots_that_left() -> None:
    first = Chain.grown(None, "a", 10, (file("ps-0", 1, ALL, ALL),))
    moved = Chain.grown(first, "b", 20, (file("ps-0", 2, EVEN, NONE), file("ps-1", 2, ODD, ODD)))

    assert [(one.name, pack(slots)) for one, slots in moved.counting()] == [
        ("ps-0-1", pack(EVEN)),
        ("ps-0-2", pack(EVEN)),
        ("ps-1-2", pack(ODD)),
    ]
    assert moved.upon == ("a",)


def test_a_file_of_which_nothing_counts_is_left_out() -> None:
    first = Chain.grown(None, "a", 10, (file("ps-0", 1, EVEN, EVEN), file("ps-1", 1, ODD, ODD)))
    second = Chain.grown(first, "b", 20, (file("ps-0", 2, EVEN, EVEN), file("ps-1", 2, ODD, NONE)))

    assert [one.name for one in second.files] == ["ps-1-1", "ps-0-2", "ps-1-2"]


def test_a_chain_is_never_longer_than_so_many_cuts() -> None:
    chain = Chain.grown(None, "1", 10, (file("ps-0", 1, ALL, ALL),))
    for number in range(2, 40):
        chain = Chain.grown(chain, str(number), 10 * number, (file("ps-0", number, ALL, whole(ALL, ALL, number)),))
        assert len(chain.files) <= LONGEST
    assert Chain.parse(chain.model_dump_json(), "here") == chain


def test_a_slot_without_rows_is_named() -> None:
    chain = Chain(cut="a", number=1, step=10, files=(file("ps-0", 1, ALL, EVEN),))

    with pytest.raises(CheckpointCorrupt, match="cut of step 10: no file has the rows of slot 1"):
        chain.counting()


def test_a_slot_that_is_whole_in_a_file_of_one_who_did_not_own_it_has_no_rows() -> None:
    everything, one = flags(range(SLOTS)), flags([3])
    chain = Chain(cut="a", number=1, step=5, files=(file("ps-0", 1, everything & ~one & 1, everything),))

    with pytest.raises(CheckpointCorrupt, match="no file has the rows of slot 3"):
        chain.counting()


def test_text_that_is_no_index_is_refused() -> None:
    with pytest.raises(CheckpointCorrupt, match=r"index\.json is no index of a cut"):
        Chain.parse('{"cut": 3}', "index.json")
