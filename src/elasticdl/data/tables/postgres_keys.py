"""The key that orders the rows of a PostgreSQL table, and the stored index of the first key of each range."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from elasticdl.errors import DataError

_COLUMNS = """
SELECT attnum, attname, attnotnull, format_type(atttypid, NULL), format_type(atttypid, atttypmod)
FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_UNIQUE = """
SELECT indisprimary, indkey::text, indnkeyatts FROM pg_index
WHERE indrelid = to_regclass(%s) AND indisunique AND indisvalid AND indpred IS NULL AND indexprs IS NULL
ORDER BY indisprimary DESC, indexrelid
"""
_ARROW_TYPES = {
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "numeric": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp without time zone": pa.timestamp("us"),
    "timestamp with time zone": pa.timestamp("us", "UTC"),
}


@dataclass(frozen=True, slots=True)
class PostgresColumn:
    name: str
    is_not_null: bool
    kind: str  # without length and precision
    sql_type: str  # as in SQL

    @property
    def arrow_type(self) -> Any:
        """The type it is read as: numeric as float64, other numbers, booleans and times as such, the rest as text."""
        return _ARROW_TYPES.get(self.kind, pa.string())


@dataclass(frozen=True, slots=True)
class TableDescription:
    columns: Mapping[str, PostgresColumn]
    key: tuple[str, ...]


def describe_table(connection: Any, relation: str, name: str, key: Sequence[str]) -> TableDescription:
    """Reads the columns and the key of `relation`, a quoted name. An empty `key` means its primary key."""
    rows = connection.execute(_COLUMNS, [relation]).fetchall()
    if not rows:
        raise DataError(f"{name}: no such table, or this user may not see it; check schema and name")
    by_number = {number: PostgresColumn(*properties) for number, *properties in rows}
    columns = {column.name: column for column in by_number.values()}
    unique = []
    for is_primary, numbers, size in connection.execute(_UNIQUE, [relation]).fetchall():
        members = tuple(by_number[int(number)] for number in numbers.split()[:size])
        if all(member.is_not_null for member in members):
            unique.append((is_primary, tuple(member.name for member in members)))
    return TableDescription(columns, _choose_key(name, tuple(key), unique))


def _choose_key(name: str, requested: tuple[str, ...], unique: list[tuple[bool, tuple[str, ...]]]) -> tuple[str, ...]:
    fits = [names for is_primary, names in unique if (sorted(names) == sorted(requested) if requested else is_primary)]
    if fits:
        return fits[0]
    others = (
        "; unique and never null are: " + " or ".join("key=" + ",".join(key) for _, key in unique) if unique else ""
    )
    if requested:
        raise DataError(
            f"{name}: key={','.join(requested)} has no unique index, or may be null, so it does not order rows"
            f"{others}; make one (CREATE UNIQUE INDEX, SET NOT NULL), or name another"
        )
    raise DataError(
        f"{name}: has no primary key, so its rows have no stable order{others}; add one (ALTER TABLE … ADD id "
        f"bigserial PRIMARY KEY), or name unique columns that are never null: ?table=…&key=a,b"
    )


_VERSION = 1


@dataclass(frozen=True, slots=True)
class KeyRanges:
    """The first key of each range, as the database writes it: a text for each column of the key."""

    rows: int
    range_rows: int
    firsts: tuple[tuple[str, ...], ...]  # of each range
    last: tuple[str, ...]  # of all rows; () if there are none

    def bounds(self, start: int) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
        """Returns the first key of the range that begins at row `start`, and of the next range; None after the last."""
        number = start // self.range_rows
        return self.firsts[number], self.firsts[number + 1] if number + 1 < len(self.firsts) else None


def ranges_path(directory: Path, table: str, key: Sequence[str], range_rows: int) -> Path:
    identity = json.dumps([_VERSION, table, list(key), range_rows])
    return directory / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.keys.json"


def load_ranges(path: Path) -> KeyRanges | None:
    """Loads an index, or returns None if there is none."""
    try:
        document = json.loads(path.read_text())
        firsts = tuple(tuple(map(str, key)) for key in document["firsts"])
        return KeyRanges(int(document["rows"]), int(document["range_rows"]), firsts, tuple(map(str, document["last"])))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save_ranges(path: Path, ranges: KeyRanges) -> KeyRanges:
    """Writes the index, unless another process was faster; returns the stored one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, staging = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".new")
        try:
            with os.fdopen(descriptor, "w") as out:
                json.dump(asdict(ranges), out)
                out.flush()
                os.fsync(out.fileno())
            os.link(staging, path)
        except FileExistsError:
            if load_ranges(path) is None:  # a power failure left it empty
                os.replace(staging, path)
        finally:
            Path(staging).unlink(missing_ok=True)
    except OSError as exc:
        raise DataError(f"the index of the table cannot be written to {path.parent}: {exc}") from exc
    return load_ranges(path) or ranges
