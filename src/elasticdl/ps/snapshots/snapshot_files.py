"""Writes the rows of a ps to files and reads them back: `ps/` in the directory of a checkpoint.

The files are safetensors. For each table they have ids, values and the optimizer's state, row by row, and beside them
which pushes are in the rows. `ps/index.json` names the files of the snapshot, see chain.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import safetensors

from elasticdl.checkpoint import manifest, safetensors_file
from elasticdl.checkpoint.manifest import FileEntry
from elasticdl.errors import CheckpointCorrupt, SpecError
from elasticdl.ps import _native
from elasticdl.ps.snapshots.chain import SnapshotChain, unpack_slots
from elasticdl.ps.tables.applied_pushes import AppliedPushes, PackedPushes, SlotMask, slot_mask
from elasticdl.ps.tables.row_store import RequestRefused
from elasticdl.ps.tables.state import PsState
from elasticdl.ps.tables.table import TableSpec
from elasticdl.ps.wire.messages import NO_IDS, Floats, Ids, TablePart
from elasticdl.storage.paths import AnyPath, StorePath
from elasticdl.storage.scratch import new_staging_path, scratch_directory

PS_DIRECTORY = "ps"
INDEX_FILE = f"{PS_DIRECTORY}/index.json"

_COPY_THREADS = min(8, os.cpu_count() or 1)
_BLOCK_BYTES = 16 << 20  # of a file are in memory at once


class UpdateState(NamedTuple):
    """The state of a ps beside its rows."""

    applied_pushes: PackedPushes  # which pushes are in the rows
    clock: int


class SnapshotRows(NamedTuple):
    """Rows at the moment of a snapshot, by table, in pieces of ids, values and state."""

    tables: dict[TableSpec, list[tuple[Ids, Floats, Floats]]]
    update_state: UpdateState

    @property
    def row_count(self) -> int:
        return sum(len(ids) for pieces in self.tables.values() for ids, _, _ in pieces)


class RestoreResult(NamedTuple):
    rows: int
    applied_pushes: int  # in the rows of the ps that owned these slots when the snapshot was taken
    snapshot_id: str  # for the writer, which may build upon it


def copy_rows(ps_state: PsState, full_slots: SlotMask, changed_slots: SlotMask, since: int) -> tuple[SnapshotRows, int]:
    """Copies all rows of `full_slots`, and of `changed_slots` the rows that changed in generation `since` or later.

    Returns the copy and the number of changed rows. Nobody may pull or push meanwhile.
    """
    tables: dict[TableSpec, list[tuple[Ids, Floats, Floats]]] = {spec: [] for spec in ps_state.specs}
    changed = 0

    def collect_stripe(stripe: int) -> list[list[Any]]:
        selections = ((full_slots, 0), (changed_slots, since))
        stripes = range(stripe, stripe + 1)
        return [
            list(ps_state.changed_rows(slots, start, stripes)) if slots.any() else [] for slots, start in selections
        ]

    with ThreadPoolExecutor(_COPY_THREADS) as pool:  # all workers wait for this, and the core does it without the GIL
        for full, increments in pool.map(collect_stripe, range(_native.STRIPES)):
            for spec, (values, state) in (*full, *increments):
                tables.setdefault(spec, []).append((values.ids, values.rows, state.rows))
            changed += sum(len(values.ids) for _, (values, _) in increments)
    return SnapshotRows(
        tables, UpdateState(ps_state.pack_applied_pushes(full_slots | changed_slots), ps_state.clock)
    ), changed


def restore_update_state(ps_state: PsState, update_state: UpdateState, slots: SlotMask) -> None:
    """Tells `ps_state` which pushes are in the restored rows of these slots."""
    applied_pushes = AppliedPushes()
    applied_pushes.merge_packed(update_state.applied_pushes)
    ps_state.merge_applied_pushes(applied_pushes.pack(slots))
    ps_state.clock = max(ps_state.clock, update_state.clock)


def write_snapshot(directory: AnyPath, name: str, snapshot: SnapshotRows) -> FileEntry:
    """Writes and syncs a file, or uploads it if `directory` is in a store. Raises OSError."""
    if not isinstance(directory, StorePath):
        return _write_file(directory / name, snapshot)
    path = new_staging_path(scratch_directory(), name)
    try:
        entry = _write_file(path, snapshot)
        (directory / name).upload(path)
        return entry
    finally:
        path.unlink(missing_ok=True)


def _write_file(path: Path, snapshot: SnapshotRows) -> FileEntry:
    tensors = {"applied_pushes": safetensors_file.concatenate_arrays(snapshot.update_state.applied_pushes)}
    for number, pieces in enumerate(snapshot.tables.values()):
        for name, arrays in zip(("ids", "values", "state"), zip(*pieces, strict=True), strict=False):
            tensors[f"{number}/{name}"] = safetensors_file.concatenate_arrays(*arrays)
    specs = [spec.model_dump() for spec in snapshot.tables]
    return safetensors_file.write_tensors(
        path, tensors, {"format": "1", "tables": json.dumps(specs), "clock": str(snapshot.update_state.clock)}
    )


def read_chain(directory: AnyPath) -> SnapshotChain:
    """Reads and verifies the index of a checkpoint's snapshot. Raises CheckpointCorrupt, or SpecError without one."""
    document = manifest.read_manifest(directory / manifest.MANIFEST_FILE)
    if INDEX_FILE not in document.files:
        raise SpecError(f"{directory}: expected a checkpoint with rows of ps. Received: one of a job without ps")
    local = manifest.fetch_files(directory, document, names=[INDEX_FILE])
    _verify_files(local, document, [INDEX_FILE])
    return SnapshotChain.parse((local / INDEX_FILE).read_text(encoding="utf-8"), str(directory / INDEX_FILE))


def fetch_snapshot(directory: AnyPath) -> Path:
    """Downloads the rows of a checkpoint and returns the local directory: the checkpoint itself if it is local."""
    document = manifest.read_manifest(directory / manifest.MANIFEST_FILE)
    names = [name for name in document.files if name.startswith(f"{PS_DIRECTORY}/")]
    return manifest.fetch_files(directory, document, names=names)


def restore_rows(ps_state: PsState, directory: Path, slots: Sequence[int]) -> RestoreResult:
    """Loads the rows of `slots` from a checkpoint, block by block, and the pushes that are in them.

    Raises CheckpointCorrupt if a file is not as it was written, and SpecError if a table differs from the one here.
    """
    chain, mask = read_chain(directory), slot_mask(slots)
    newest = [file for file in chain.newest_files if (unpack_slots(file.owned_slots) & mask).any()]
    files = [
        (file.name, slots_of_file & mask)
        for file, slots_of_file in chain.effective_files()
        if (slots_of_file & mask).any()
    ]
    document = manifest.read_manifest(directory / manifest.MANIFEST_FILE)
    _verify_files(
        directory, document, sorted({_relative_path(name) for name in (*dict(files), *(file.name for file in newest))})
    )
    rows = 0
    for name, slots_of_file in files:
        with _open_safetensors(directory / _relative_path(name)) as opened:
            for number, spec in enumerate(_read_specs(opened)):
                table = _declare_table(ps_state, spec, directory)
                for ids, values, state in _read_blocks(opened, number, slots_of_file):
                    pieces = (TablePart(table, ids, values), TablePart(table, NO_IDS, state))
                    _load_rows(ps_state, pieces)
                    rows += len(ids)
    for file in newest:
        with _open_safetensors(directory / _relative_path(file.name)) as opened:
            update_state = UpdateState(opened.get_tensor("applied_pushes"), int(opened.metadata()["clock"]))
            restore_update_state(ps_state, update_state, unpack_slots(file.owned_slots) & mask)
    return RestoreResult(rows, sum(file.applied_pushes for file in newest), chain.snapshot_id)


def count_rows_by_table(directory: Path) -> dict[TableSpec, int]:
    """Returns an upper bound of the number of rows for every table of a checkpoint."""
    counts: dict[TableSpec, int] = {}
    for file in read_chain(directory).files:
        with _open_safetensors(directory / _relative_path(file.name)) as opened:
            for number, spec in enumerate(_read_specs(opened)):
                name = f"{number}/ids"
                count = opened.get_slice(name).get_shape()[0] if name in list(opened.keys()) else 0
                counts[spec] = counts.get(spec, 0) + count
    return counts


def read_rows(directory: Path, table: str) -> Iterator[tuple[Ids, Floats]]:
    """Yields the rows of a table, without state, in pieces. If an id comes more than once, the last row is valid."""
    chain = read_chain(directory)
    document = manifest.read_manifest(directory / manifest.MANIFEST_FILE)
    for file, slots in chain.effective_files():
        _verify_files(directory, document, [_relative_path(file.name)])
        with _open_safetensors(directory / _relative_path(file.name)) as opened:
            for number, spec in enumerate(_read_specs(opened)):
                if spec.name == table:
                    yield from ((ids, values) for ids, values, _ in _read_blocks(opened, number, slots))


def _relative_path(name: str) -> str:
    return f"{PS_DIRECTORY}/{name}"


def _verify_files(directory: Path, document: manifest.Manifest, names: Sequence[str]) -> None:
    if missing := [name for name in names if name not in document.files]:
        raise CheckpointCorrupt(f"{directory}: expected {missing[0]} in its manifest")
    manifest.verify_files(directory, replace(document, files={name: document.files[name] for name in names}))


def _open_safetensors(path: Path) -> Any:
    try:
        return safetensors.safe_open(path, framework="numpy")
    except (OSError, safetensors.SafetensorError) as exc:
        raise CheckpointCorrupt(f"{path} is not a safetensors file: {exc}") from exc


def _read_specs(opened: Any) -> list[TableSpec]:
    return [TableSpec.model_validate(spec) for spec in json.loads(opened.metadata()["tables"])]


def _read_blocks(opened: Any, number: int, slots: SlotMask) -> Iterator[tuple[Ids, Floats, Floats]]:
    """Yields the rows of these slots in a table of a file."""
    if f"{number}/ids" not in list(opened.keys()):  # no rows of this table
        return
    ids, values, state = (opened.get_slice(f"{number}/{name}") for name in ("ids", "values", "state"))
    count, columns, state_columns = ids.get_shape()[0], values.get_shape()[1], state.get_shape()[1]
    step = max(1, _BLOCK_BYTES // (8 + 4 * (columns + state_columns)))
    for start in range(0, count, step):
        block = slice(start, min(count, start + step))
        block_ids: Ids = ids[block]
        is_selected = slots[_native.slots(block_ids)] == 1
        if is_selected.any():
            yield block_ids[is_selected], values[block][is_selected], state[block][is_selected]


def _declare_table(ps_state: PsState, spec: TableSpec, directory: Path) -> int:
    try:
        return ps_state.declare(json.dumps([spec.model_dump()]).encode())[spec.name]
    except RequestRefused as exc:
        raise SpecError(f"{directory}: a checkpoint of another model: {exc}") from exc


def _load_rows(ps_state: PsState, pieces: tuple[TablePart, TablePart]) -> None:
    try:
        ps_state.load_rows(pieces)
    except (RequestRefused, _native.MemoryLimit) as exc:
        raise SpecError(f"{ps_state.name} cannot restore its rows: {exc}") from exc
