"""What PostgreSQL knows of a table: its columns, and the key that orders its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
_KINDS = {
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
class Column:
    name: str
    is_never_null: bool
    kind: str  # without length and precision
    type: str  # as SQL writes it

    @property
    def arrow(self) -> Any:
        """What it is read as: numbers, truths and times as such, numeric as float64, all else as text."""
        return _KINDS.get(self.kind, pa.string())


@dataclass(frozen=True, slots=True)
class Described:
    columns: Mapping[str, Column]
    key: tuple[str, ...]


def describe(connection: Any, relation: str, name: str, key: Sequence[str]) -> Described:
    """Columns and key of `relation`, quoted as SQL wants it. `key` empty: its primary key."""
    found = connection.execute(_COLUMNS, [relation]).fetchall()
    if not found:
        raise DataError(f"{name}: no such table, or this user may not see it; check schema and name")
    by_number = {number: Column(*rest) for number, *rest in found}
    columns = {column.name: column for column in by_number.values()}
    unique = []
    for is_primary, numbers, size in connection.execute(_UNIQUE, [relation]).fetchall():
        members = tuple(by_number[int(number)] for number in numbers.split()[:size])
        if all(member.is_never_null for member in members):
            unique.append((is_primary, tuple(member.name for member in members)))
    return Described(columns, _chosen_key(name, tuple(key), unique))


def _chosen_key(name: str, given: tuple[str, ...], unique: list[tuple[bool, tuple[str, ...]]]) -> tuple[str, ...]:
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
