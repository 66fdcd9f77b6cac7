"""The index of a snapshot, `ps/index.json`: every slot has rows in files of the checkpoint, or the index is corrupt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

import numpy as np

from elasticdl.errors import CheckpointCorrupt
from elasticdl.ps.slots import SLOTS
from elasticdl.ps.snapshots.chain import SnapshotChain, SnapshotFile, pack_slots
from elasticdl.spec import PsId


def fuzz_one(data: bytes) -> None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return  # the manifest's checksum covers what a ps wrote, which is UTF-8
    try:
        chain = SnapshotChain.parse(text, "ps/index.json")
        effective = chain.effective_files()
    except CheckpointCorrupt:
        return
    assert all(PurePath(file.name).name == file.name for file in chain.files), "a path out of the checkpoint"
    assert np.maximum.reduce([flags for _, flags in effective]).all(), "every slot has rows"
    assert SnapshotChain.parse(chain.model_dump_json(), "again") == chain


def seeds() -> Iterator[bytes]:
    all_slots, no_slots = pack_slots(np.ones(SLOTS, np.uint8)), pack_slots(np.zeros(SLOTS, np.uint8))
    first = SnapshotFile(
        name="ps-0-1.safetensors",
        ps=PsId("ps-0"),
        number=1,
        step=5,
        owned_slots=all_slots,
        full_slots=all_slots,
        rows=3,
        applied_pushes=7,
    )
    second = first.model_copy(update={"name": "ps-0-2.safetensors", "number": 2, "step": 10, "full_slots": no_slots})
    yield SnapshotChain(snapshot_id="a", number=1, step=5, files=(first,)).model_dump_json().encode()
    yield (
        SnapshotChain(snapshot_id="b", number=2, step=10, base_ids=("a",), files=(first, second))
        .model_dump_json()
        .encode()
    )
