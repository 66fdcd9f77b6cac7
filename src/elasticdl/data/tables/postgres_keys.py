"""The key that orders the rows of a PostgreSQL table, and the stored index of which key begins each range of rows."""

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
    sql_type: str  # as SQL writes it

    @property
    def arrow_type(self) -> Any:
        """What it is read as: numbers, truths and times as such, numeric as float64, all else as text."""
        return _ARROW_TYPES.get(self.kind, pa.string())


@dataclass(frozen=True, slots=True)
class TableDescription:
    columns: Mapping[str, PostgresColumn]
    key: tuple[str, ...]


def describe_table(connection: Any, relation: str, name: str, key: Sequence[str]) -> TableDescription:
    """Columns and key of `relation`, quoted as SQL wants it. `key` empty: its primary key."""
    found = connection.execute(_COLUMNS, [relation]).fetchall()
    if not found:
        raise DataError(f"{name}: no such table, or this user may not see it; check schema and name")
    by_number = {number: PostgresColumn(*rest) for number, *rest in found}
    columns = {column.name: column for column in by_number.values()}
    unique = []
    for is_primary, numbers, size in connection.execute(_UNIQUE, [relation]).fetchall():
        members = tuple(by_number[int(number)] for number in numbers.split()[:size])
        if all(member.is_not_null for member in members):
            unique.append((is_primary, tuple(member.name for member in members)))
    return TableDescription(columns, _choose_key(name, tuple(key), unique))


def _choose_key(name: str, given: tuple[str, ...], unique: list[tuple[bool, tuple[str, ...]]]) -> tuple[str, ...]:
    fits = [names for is_primary, names in unique if (sorted(names) == sorted(given) if given else is_primary)]
    if fits:
        return fits[0]
    others = (
        "; unique and never null are: " + " or ".join("key=" + ",".join(key) for _, key in unique) if unique else ""
    )
    if given:
        raise DataError(
            f"{name}: key={','.join(given)} has no unique index, or may be null, so it numbers no rows{others}; "
            f"make one (CREATE UNIQUE INDEX, SET NOT NULL), or name another"
        )
    raise DataError(
        f"{name}: has no primary key, so its rows have no order that lasts{others}; add one (ALTER TABLE … ADD id "
        f"bigserial PRIMARY KEY), or name unique columns that are never null: ?table=…&key=a,b"
    )


_VERSION = 1


@dataclass(frozen=True, slots=True)
class KeyRanges:
    """Keys as the database writes them, a text for each column of the key."""

    rows: int
    range_rows: int
    firsts: tuple[tuple[str, ...], ...]  # of each range
    last: tuple[str, ...]  # of all; () where there are no rows

    def bounds(self, start: int) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
        """The first key of the range that begins at row `start`, and of the next one; None for the last range."""
        number = start // self.range_rows
        return self.firsts[number], self.firsts[number + 1] if number + 1 < len(self.firsts) else None


def ranges_path(directory: Path, table: str, key: Sequence[str], range_rows: int) -> Path:
    identity = json.dumps([_VERSION, table, list(key), range_rows])
    return directory / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.keys.json"


def load_ranges(path: Path) -> KeyRanges | None:
    """What was kept there, or None."""
    try:
        found = json.loads(path.read_text())
        firsts = tuple(tuple(map(str, key)) for key in found["firsts"])
        return KeyRanges(int(found["rows"]), int(found["range_rows"]), firsts, tuple(map(str, found["last"])))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save_ranges(path: Path, ranges: KeyRanges) -> KeyRanges:
    """Write it, unless somebody did meanwhile; what is there in the end holds."""
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
            if load_ranges(path) is None:  # a power cut left it without its content
                os.replace(staging, path)
        finally:
            Path(staging).unlink(missing_ok=True)
    except OSError as exc:
        raise DataError(f"the index of the table cannot be written to {path.parent}: {exc}") from exc
    return load_ranges(path) or ranges
