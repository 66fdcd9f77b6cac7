"""Rows of a ps in files, and back: `ps/` in the directory of a checkpoint.

A file is safetensors. For each table ids, values and the optimizer's state, in rows that belong together; beside them
which pushes are in the rows. `ps/index.json` says which files make the cut, see chain.py.
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

from elasticdl.checkpoint import file, manifest
from elasticdl.checkpoint.manifest import FileEntry
from elasticdl.errors import CheckpointCorrupt, SpecError
from elasticdl.ps import _native
from elasticdl.ps.chain import Chain, unpack
from elasticdl.ps.holdings import Holdings
from elasticdl.ps.marks import Document, Flags, Marks, flags
from elasticdl.ps.store import Refused
from elasticdl.ps.table import TableSpec
from elasticdl.ps.wire import NO_IDS, Floats, Ids, Part
from elasticdl.storage.place import Place, StorePath
from elasticdl.storage.scratch import hidden, scratch

DIRECTORY = "ps"
INDEX = f"{DIRECTORY}/index.json"

_COPYING = min(8, os.cpu_count() or 1)  # threads
_BLOCK_BYTES = 16 << 20  # so much of a file is in memory at once


class Standing(NamedTuple):
    """What a ps knows beside its rows."""

    marks: Document  # which pushes are in the rows
    clock: int


class Copy(NamedTuple):
    """Rows as they were at a cut, by table, in pieces of ids, values and state."""

    tables: dict[TableSpec, list[tuple[Ids, Floats, Floats]]]
    standing: Standing

    @property
    def rows(self) -> int:
        return sum(len(ids) for pieces in self.tables.values() for ids, _, _ in pieces)


class Restored(NamedTuple):
    rows: int
    applied: int  # pushes that were in the rows of the ps that owned these slots at the cut
    cut: str  # what a keeper needs to know to build upon it


def copy(holdings: Holdings, whole: Flags, others: Flags, since: int) -> tuple[Copy, int]:
    """All rows of `whole` slots, and of the `others` those changed in generation `since` or later, with their number.

    Nobody may pull or push meanwhile.
    """
    tables: dict[TableSpec, list[tuple[Ids, Floats, Floats]]] = {spec: [] for spec in holdings.specs}
    changed = 0

    def collected(stripe: int) -> list[list[Any]]:
        wanted = ((whole, 0), (others, since))
        here = range(stripe, stripe + 1)
        return [list(holdings.changed(slots, start, here)) if slots.any() else [] for slots, start in wanted]

    with ThreadPoolExecutor(_COPYING) as pool:  # all wait for this, and the core needs no GIL for it
        for all_rows, some_rows in pool.map(collected, range(_native.STRIPES)):
            for spec, (values, state) in (*all_rows, *some_rows):
                tables.setdefault(spec, []).append((values.ids, values.rows, state.rows))
            changed += sum(len(values.ids) for _, (values, _) in some_rows)
    return Copy(tables, Standing(holdings.marks(whole | others), holdings.clock)), changed


def resume(holdings: Holdings, standing: Standing, slots: Flags) -> None:
    """Know of the pushes that are in restored rows."""
    marks = Marks()
    marks.load(standing.marks)
    holdings.load_marks(marks.dump(slots))
    holdings.clock = max(holdings.clock, standing.clock)


def write(directory: Place, name: str, held: Copy) -> FileEntry:
    """Write and sync a file; into a store it is uploaded. Raises OSError."""
    if not isinstance(directory, StorePath):
        return _write_file(directory / name, held)
    path = hidden(scratch(), name)
    try:
        entry = _write_file(path, held)
        (directory / name).upload(path)
        return entry
    finally:
        path.unlink(missing_ok=True)


def _write_file(path: Path, held: Copy) -> FileEntry:
    tensors = {"marks": file.array(held.standing.marks)}
    for number, pieces in enumerate(held.tables.values()):
        for name, arrays in zip(("ids", "values", "state"), zip(*pieces, strict=True), strict=False):
            tensors[f"{number}/{name}"] = file.array(*arrays)
    specs = [spec.model_dump() for spec in held.tables]
    return file.write(path, tensors, {"format": "1", "tables": json.dumps(specs), "clock": str(held.standing.clock)})


def chain_of(directory: Place) -> Chain:
    """The cut of a checkpoint, its index verified. Raises CheckpointCorrupt, or SpecError where there is none."""
    document = manifest.read(directory / manifest.FILE)
    if INDEX not in document.files:
        raise SpecError(f"{directory}: expected a checkpoint with rows of ps. Received: one of a job without ps")
    local = manifest.fetch(directory, document, names=[INDEX])
    _verify(local, document, [INDEX])
    return Chain.parse((local / INDEX).read_text(encoding="utf-8"), str(directory / INDEX))


def fetch(directory: Place) -> Path:
    """A local directory with the rows of a checkpoint; the checkpoint itself where it is local."""
    document = manifest.read(directory / manifest.FILE)
    names = [name for name in document.files if name.startswith(f"{DIRECTORY}/")]
    return manifest.fetch(directory, document, names=names)


def restore(holdings: Holdings, directory: Path, slots: Sequence[int]) -> Restored:
    """Load the rows of `slots` from a checkpoint, and what belongs to them; at most some of a file is in memory.

    Raises CheckpointCorrupt where a file is not what was written, and SpecError where a table is another one here.
    """
    chain, wanted = chain_of(directory), flags(slots)
    newest = [cut for cut in chain.newest if (unpack(cut.owned) & wanted).any()]
    files = [(cut.name, counts & wanted) for cut, counts in chain.counting() if (counts & wanted).any()]
    document = manifest.read(directory / manifest.FILE)
    _verify(directory, document, sorted({_path(name) for name in (*dict(files), *(cut.name for cut in newest))}))
    rows = 0
    for name, counts in files:
        with _open(directory / _path(name)) as opened:
            for number, spec in enumerate(_specs(opened)):
                table = _declared(holdings, spec, directory)
                for ids, values, state in _blocks(opened, number, counts):
                    pieces = (Part(table, ids, values), Part(table, NO_IDS, state))
                    _load(holdings, pieces)
                    rows += len(ids)
    for cut in newest:
        with _open(directory / _path(cut.name)) as opened:
            standing = Standing(opened.get_tensor("marks"), int(opened.metadata()["clock"]))
            resume(holdings, standing, unpack(cut.owned) & wanted)
    return Restored(rows, sum(cut.applied for cut in newest), chain.cut)


def tables(directory: Path) -> dict[TableSpec, int]:
    """Every table of a checkpoint, and how many rows it has at most."""
    found: dict[TableSpec, int] = {}
    for cut in chain_of(directory).files:
        with _open(directory / _path(cut.name)) as opened:
            for number, spec in enumerate(_specs(opened)):
                name = f"{number}/ids"
                here = opened.get_slice(name).get_shape()[0] if name in list(opened.keys()) else 0
                found[spec] = found.get(spec, 0) + here
    return found


def rows(directory: Path, table: str) -> Iterator[tuple[Ids, Floats]]:
    """The rows of a table, without state, a piece at a time. Where an id comes again, the later row is the one."""
    chain = chain_of(directory)
    document = manifest.read(directory / manifest.FILE)
    for cut, counts in chain.counting():
        _verify(directory, document, [_path(cut.name)])
        with _open(directory / _path(cut.name)) as opened:
            for number, spec in enumerate(_specs(opened)):
                if spec.name == table:
                    yield from ((ids, values) for ids, values, _ in _blocks(opened, number, counts))


def _path(name: str) -> str:
    return f"{DIRECTORY}/{name}"


def _verify(directory: Path, document: manifest.Manifest, names: Sequence[str]) -> None:
    if missing := [name for name in names if name not in document.files]:
        raise CheckpointCorrupt(f"{directory}: expected {missing[0]} in its manifest")
    manifest.verify(directory, replace(document, files={name: document.files[name] for name in names}))


def _open(path: Path) -> Any:
    try:
        return safetensors.safe_open(path, framework="numpy")
    except (OSError, safetensors.SafetensorError) as exc:
        raise CheckpointCorrupt(f"{path} is not a safetensors file: {exc}") from exc


def _specs(opened: Any) -> list[TableSpec]:
    return [TableSpec.model_validate(one) for one in json.loads(opened.metadata()["tables"])]


def _blocks(opened: Any, number: int, counts: Flags) -> Iterator[tuple[Ids, Floats, Floats]]:
    """The rows of these slots."""
    if f"{number}/ids" not in list(opened.keys()):  # no rows of this table
        return
    ids, values, state = (opened.get_slice(f"{number}/{name}") for name in ("ids", "values", "state"))
    count, columns, more = ids.get_shape()[0], values.get_shape()[1], state.get_shape()[1]
    step = max(1, _BLOCK_BYTES // (8 + 4 * (columns + more)))
    for start in range(0, count, step):
        some = slice(start, min(count, start + step))
        found: Ids = ids[some]
        mine = counts[_native.slots(found)] == 1
        if mine.any():
            yield found[mine], values[some][mine], state[some][mine]


def _declared(holdings: Holdings, spec: TableSpec, directory: Path) -> int:
    try:
        return holdings.declare(json.dumps([spec.model_dump()]).encode())[spec.name]
    except Refused as exc:
        raise SpecError(f"{directory}: a checkpoint of another model: {exc}") from exc


def _load(holdings: Holdings, pieces: tuple[Part, Part]) -> None:
    try:
        holdings.load(pieces)
    except (Refused, _native.MemoryLimit) as exc:
        raise SpecError(f"{holdings.name} cannot restore its rows: {exc}") from exc
