"""Lines of CSV traces, checked: what is wrong is told with file and line, what was expected and what came."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elasticdl.errors import DataError

MOST = 10**9  # devices, workers, records: more than any trace has, and few enough for any array


@dataclass(frozen=True, slots=True)
class Row:
    """One line, by column."""

    path: Path
    line: int
    values: dict[str, str]

    def text(self, column: str) -> str:
        if not (value := self.values[column].strip()):
            raise self.wrong(column, "something", value)
        return value

    def count(self, column: str) -> int:
        """A whole number from 1 to `MOST`."""
        try:
            number = int(self.values[column])
        except ValueError:
            number = 0
        if not 1 <= number <= MOST:
            raise self.wrong(column, f"a whole number from 1 to {MOST:,}", self.values[column])
        return number

    def number(self, column: str, *, least: float = 0.0, is_open: bool = False) -> float:
        """Finite and at least `least`, with `is_open` above it."""
        try:
            number = float(self.values[column])
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or number < least or (is_open and number == least):
            expected = f"a number {'above' if is_open else 'of at least'} {least:g}"
            raise self.wrong(column, expected, self.values[column])
        return number

    def wrong(self, column: str, expected: str, received: str) -> DataError:
        return DataError(f"{self.path}:{self.line}: {column}: expected {expected}, received {received!r}")


def read(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    """All lines but empty ones. The header must have these columns, in any order, among others."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.reader(file)
            header = [name.strip() for name in next(reader, [])]
            if missing := [name for name in columns if name not in header]:
                raise DataError(
                    f"{path}:1: expected the columns {','.join(columns)}, received {','.join(header) or 'nothing'}: "
                    f"{', '.join(missing)} missing"
                )
            for fields in reader:
                if not fields:
                    continue
                if len(fields) != len(header):
                    raise DataError(
                        f"{path}:{reader.line_num}: expected {len(header)} values ({','.join(header)}), "
                        f"received {len(fields)}: {','.join(fields)!r}"
                    )
                yield Row(path, reader.line_num, dict(zip(header, fields, strict=True)))
    except (OSError, UnicodeDecodeError, csv.Error) as exc:
        raise DataError(f"{path}: expected a CSV file: {exc}") from exc
