"""Exports tables for serving: rows in safetensors files of limited size, and a lookup that reads only what it needs.

rows.json                        the tables: columns, rows, initial values, shards
0-users-00000.safetensors, …     ids (sorted) and values

The row of an id is in the shard `slot * shards // 1024`, where slot is the low ten bits of `mix64(id)`, as on the ps.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from elasticdl.checkpoint import safetensors_file
from elasticdl.checkpoint.manifest import FileEntry
from elasticdl.errors import CheckpointCorrupt, SpecError
from elasticdl.ps import _native
from elasticdl.ps.client.lookup_plan import LookupPlan
from elasticdl.ps.slots import SLOTS
from elasticdl.ps.snapshots import snapshot_files
from elasticdl.ps.tables.table import TableSpec, create_table
from elasticdl.ps.wire.messages import Floats, Ids
from elasticdl.storage.names import FileName, UnsafeName, safe_join

INDEX_FILE = "rows.json"
SHARD_BYTES = 256 << 20
_IDS_PER_PULL = 1 << 16  # ids in one request


class ExportedTable(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    spec: TableSpec
    seed: int  # of the job: determines the values of rows that were never trained
    rows: int
    shards: tuple[FileName, ...]


class ExportIndex(BaseModel):
    """The content of `rows.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = 1
    tables: dict[str, ExportedTable]


class TablePuller(Protocol):
    """The part of a client that `pull_whole_table` needs."""

    def plan(self, ids: Ids) -> LookupPlan: ...
    def begin_pull(self, plans: Mapping[str, LookupPlan], *, create: bool = True) -> Any: ...
    def finish_pull(self, plans: Mapping[str, LookupPlan], pending: Any) -> dict[str, Floats]: ...


def pull_whole_table(client: TablePuller, spec: TableSpec) -> Floats:
    """Returns all rows of a table with a known number of rows, in the order of their ids; they must fit into memory."""
    if spec.rows is None:
        raise SpecError(f"table {spec.name}: expected a known number of rows; write its rows to files instead")
    values = np.empty((spec.rows, spec.columns), np.float32)
    for start in range(0, spec.rows, _IDS_PER_PULL):
        ids = np.arange(start, min(spec.rows, start + _IDS_PER_PULL), dtype=np.int64)
        plans = {spec.name: client.plan(ids)}
        rows = client.finish_pull(plans, client.begin_pull(plans, create=False))[spec.name]
        values[start : start + len(ids)] = rows[plans[spec.name].inverse]
    return values


def export_tables(checkpoint: Path, directory: Path, seed: int, shard_bytes: int = SHARD_BYTES) -> dict[str, FileEntry]:
    """Writes the tables of a checkpoint into `directory`; returns the entries of its manifest.

    Rows are distributed to the shards as they are read, then each shard is sorted, so one shard at a time is in
    memory. Raises CheckpointCorrupt, OSError.
    """
    entries: dict[str, FileEntry] = {}
    tables: dict[str, ExportedTable] = {}
    for number, (spec, rows) in enumerate(snapshot_files.count_rows_by_table(checkpoint).items()):
        count = min(SLOTS, 1 + rows * (8 + 4 * spec.columns) // shard_bytes)
        names = [f"{number}-{_file_stem(spec.name)}-{shard:05d}.safetensors" for shard in range(count)]
        unsorted = directory / f".unsorted-{number}"
        unsorted.mkdir()
        _distribute_rows(snapshot_files.read_rows(checkpoint, spec.name), unsorted, count)
        total = 0
        for shard, name in enumerate(names):
            ids, values = _sort_shard(unsorted / str(shard), spec.columns)
            entries[name] = safetensors_file.write_tensors(
                directory / name,
                {
                    "ids": safetensors_file.concatenate_arrays(ids),
                    "values": safetensors_file.concatenate_arrays(values),
                },
            )
            total += len(ids)
        shutil.rmtree(unsorted)
        tables[spec.name] = ExportedTable(spec=spec, seed=seed, rows=total, shards=tuple(names))
    index = ExportIndex(tables=tables).model_dump_json(indent=1).encode()
    return entries | {INDEX_FILE: safetensors_file.write_bytes(directory / INDEX_FILE, index)}


class ExportedTables:
    """Looks up rows of exported tables. A file is opened when it is first needed; safe for any number of threads."""

    def __init__(self, directory: Path, tables: Mapping[str, ExportedTable]) -> None:
        self._directory = directory
        self.tables = tables
        self._untrained = {name: create_table(table.spec, table.seed) for name, table in tables.items()}
        self._opened: dict[str, _Shard] = {}

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Reads the index. Raises SpecError if there is none, CheckpointCorrupt if it cannot be read."""
        try:
            return cls(directory, ExportIndex.model_validate_json((directory / INDEX_FILE).read_text()).tables)
        except FileNotFoundError as exc:
            raise SpecError(f"{directory}: expected exported tables with {INDEX_FILE}") from exc
        except (OSError, UnicodeDecodeError, ValidationError) as exc:
            raise CheckpointCorrupt(f"{directory / INDEX_FILE} does not describe exported tables: {exc}") from exc

    def lookup(self, table: str, ids: Ids) -> Floats:
        """Returns one row for each id. An id that was never trained gets the initial values it would have had."""
        if table not in self.tables:
            raise SpecError(f"{self._directory}: expected one of {', '.join(self.tables)}. Received: table {table}")
        rows = np.empty((len(ids), self.tables[table].spec.columns), np.float32)
        ids = np.ascontiguousarray(ids, np.int64)
        self._untrained[table].pull(ids, rows, 0, False)
        shards = self.tables[table].shards
        shard_of = _shard_numbers(_native.slots(ids), len(shards))
        for shard in np.unique(shard_of).tolist():
            positions = np.flatnonzero(shard_of == shard)
            rows_in_shard, are_there = self._shard(shards[shard]).find(ids[positions])
            rows[positions[are_there]] = self._shard(shards[shard]).values[rows_in_shard[are_there]]
        return rows

    def _shard(self, name: str) -> _Shard:
        if name not in self._opened:
            try:
                self._opened[name] = _Shard.open(safe_join(self._directory, name))
            except UnsafeName as exc:
                raise CheckpointCorrupt(str(exc)) from exc
        return self._opened[name]


class _Shard(NamedTuple):
    """Both arrays are mapped from the file: a page is read when it is first used."""

    ids: Ids
    values: Floats

    @classmethod
    def open(cls, path: Path) -> _Shard:
        try:
            content = np.memmap(path, np.uint8, mode="r")
            size = int(content[:8].view("<u8")[0])
            header = json.loads(bytes(content[8 : 8 + size]))
            ids, values = (_map_array(content[8 + size :], header[name]) for name in ("ids", "values"))
        except (OSError, ValueError, KeyError, IndexError) as exc:
            raise CheckpointCorrupt(f"{path} is not a shard of a table: {exc}") from exc
        return cls(ids, values)

    def find(self, ids: Ids) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Returns the positions of these ids, and whether each is in the shard."""
        positions = np.searchsorted(self.ids, ids)
        positions[positions == len(self.ids)] = 0
        are_there = self.ids[positions] == ids if len(self.ids) else np.zeros(len(ids), np.bool_)
        return positions, np.asarray(are_there)


def _map_array(content: NDArray[np.uint8], entry: dict[str, Any]) -> NDArray[Any]:
    begin, end = entry["data_offsets"]
    return content[begin:end].view({"I64": "<i8", "F32": "<f4"}[entry["dtype"]]).reshape(entry["shape"])


def _shard_numbers(slots: NDArray[np.uint16], count: int) -> NDArray[np.int64]:
    return slots.astype(np.int64) * count // SLOTS


def _distribute_rows(rows: Iterable[tuple[Ids, Floats]], directory: Path, count: int) -> None:
    """Appends each row to the unsorted files of its shard: ids in one file, values in another."""
    for shard in range(count):
        (directory / f"{shard}.ids").touch()
        (directory / f"{shard}.values").touch()
    for ids, values in rows:
        shard_of = _shard_numbers(_native.slots(ids), count)
        order = np.argsort(shard_of, kind="stable")
        for positions in np.split(order, np.flatnonzero(np.diff(shard_of[order])) + 1):
            for array, kind in ((ids, "ids"), (values, "values")):
                with (directory / f"{shard_of[positions[0]]}.{kind}").open("ab") as opened:
                    array[positions].tofile(opened)


def _sort_shard(path: Path, columns: int) -> tuple[Ids, Floats]:
    """Reads the unsorted files of a shard and sorts the rows by id; the last row of an id counts."""
    ids: Ids = np.fromfile(path.with_name(path.name + ".ids"), np.int64)
    values: Floats = np.fromfile(path.with_name(path.name + ".values"), np.float32).reshape(-1, columns)
    distinct, last = np.unique(ids[::-1], return_index=True)
    return distinct, values[len(ids) - 1 - last]


def _file_stem(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name)[:80]
