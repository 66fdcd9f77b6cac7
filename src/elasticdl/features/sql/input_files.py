"""The input files of an analysis: which files a path means, their columns and delimiter, as training reads them."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, Any, cast

from elasticdl.data import column_names
from elasticdl.data.files import paths, stored_file
from elasticdl.errors import DataError

_OPENERS: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
_MAX_HEADER_BYTES = 1 << 20
_MAX_COLUMNS = 100_000


@dataclass(frozen=True, slots=True)
class CsvFiles:
    """Text with one record in a line. `columns` are all of its fields."""

    paths: tuple[str, ...]
    columns: tuple[str, ...]
    delimiter: str
    has_header: bool
    wanted: tuple[str, ...] = ()  # those to look at, if not all


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    paths: tuple[str, ...]


def find_input_files(uri: str, columns: Sequence[str], delimiter: str | None) -> CsvFiles | ParquetFiles:
    """The files at `uri`. DataError where they are not of one kind, or do not have the same columns."""
    found = tuple(stored_file.find_file(path).path for path in paths.expand_paths(uri, known_only=False))
    kinds = {path: _file_kind(path) for path in found}
    # Beside the data of a folder lie read-me files and markers of success.
    known = tuple(path for path in found if kinds[path]) or found
    first = known[0]
    other = next((path for path in known if kinds[path] != kinds[first]), None)
    if other is not None:
        raise DataError(
            f"{other} is {kinds[other]} but {first} is {kinds[first]}; use a glob that matches only one kind"
        )
    if kinds[first] == "parquet":
        return ParquetFiles(known)
    if kinds[first] in ("tfrecord", "jsonl"):
        raise DataError(f"{first}: records of {kinds[first]} files have no columns; analyze CSV, Parquet or a table")
    return _inspect_csv(known, tuple(columns), delimiter)


def _file_kind(path: str) -> str | None:
    plain = path.removesuffix(compression_suffix(path))
    suffix = PurePosixPath(plain).suffix.lower()
    return "csv" if suffix in (".txt", ".data", ".test") else paths.format_from_extension(plain)


def compression_suffix(path: str) -> str:
    """The ending that says so, or ""."""
    suffix = PurePosixPath(path).suffix
    if suffix.lower() in (".zst", ".zip", ".lz4"):
        raise DataError(f"{path}: {suffix} files are not read; use .gz, .xz or .bz2, or decompress it")
    return suffix if suffix.lower() in _OPENERS else ""


def open_decompressed(path: str, raw: IO[bytes]) -> IO[bytes]:
    """The bytes of a file, decompressed as they are read."""
    ending = compression_suffix(path).lower()
    return cast("IO[bytes]", _OPENERS[ending](raw, "rb") if ending else io.BufferedReader(cast(Any, raw)))


def field_name(place: int) -> str:
    """How a field is called while it is analyzed: databases take A and a for the same name, files do not."""
    return f"field {place}"


def _inspect_csv(found: tuple[str, ...], columns: tuple[str, ...], delimiter: str | None) -> CsvFiles:
    first = _first_line(found[0])
    split_by = delimiter or _detect_delimiter(found[0], first)
    fields = _split_fields(found[0], first, split_by)
    _check_delimiter(found[0], first, fields, split_by, columns)
    given = expand_column_names(columns)
    names, wanted, header_lines = _resolve_columns(found[0], fields, given)
    for path in found[1:]:
        others = _split_fields(path, _first_line(path), split_by)
        if header_lines and tuple(others) != tuple(fields):
            raise DataError(f"{path}, line 1: other columns ({column_names.format_names(others)}) than {found[0]} has")
        if len(others) != len(fields):
            raise DataError(f"{path}, line 1: {len(others)} fields, and {found[0]} has {len(fields)}")
    return CsvFiles(found, names, split_by, bool(header_lines), wanted)


def _resolve_columns(
    path: str, fields: list[str], given: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    try:
        names, wanted, lines = column_names.resolve_columns(path, fields, given)
    except DataError as exc:
        raise DataError(str(exc).replace("data.columns", "--columns")) from exc
    # A record taken for a header has values in it: numbers, or nothing.
    values = [name for name in names if not name.strip() or re.fullmatch(r"[+-]?[0-9.]+", name.strip())]
    if lines and not given and values:
        raise DataError(
            f"{path}, line 1: this is no header: {column_names.format_names(values)} are no names of columns; "
            f"if the file has none, name all {len(fields)} columns: --columns label,I1..I{len(fields) - 1}"
        )
    return names, wanted, lines


def _check_delimiter(path: str, line: str, fields: list[str], delimiter: str, columns: tuple[str, ...]) -> None:
    if len(fields) > 1 or len(columns) == 1:
        return
    others = {mark: line.count(mark) for mark in ",\t;|" if mark != delimiter and mark in line}
    if others:
        mark = max(others, key=lambda other: others[other])
        raise DataError(
            f"{path}, line 1: one column when split at {delimiter!r}, and {others[mark]} times {mark!r} in it; "
            f"say --delimiter {'tab' if mark == chr(9) else repr(mark)}"
        )


def _detect_delimiter(path: str, first: str) -> str:
    suffix = PurePosixPath(path.removesuffix(compression_suffix(path))).suffix.lower()
    if suffix in (".csv", ".tsv"):
        return "," if suffix == ".csv" else "\t"
    return "\t" if "\t" in first else ","


def _first_line(path: str) -> str:
    try:
        with stored_file.find_file(path).open() as raw, open_decompressed(path, raw) as file:
            line = file.readline(_MAX_HEADER_BYTES)
    except (OSError, EOFError, lzma.LZMAError) as exc:
        raise DataError(f"{path}: cannot be read: {exc}") from exc
    if len(line) == _MAX_HEADER_BYTES:
        raise DataError(f"{path}, line 1: longer than {_MAX_HEADER_BYTES} bytes; this is no CSV file")
    try:
        return line.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as exc:
        raise DataError(f"{path}, line 1: not UTF-8 ({exc.reason}); convert the file") from exc


def _split_fields(path: str, line: str, delimiter: str) -> list[str]:
    try:
        rows = list(csv.reader([line], delimiter=delimiter))
    except csv.Error as exc:
        raise DataError(f"{path}, line 1: not a CSV record: {exc}") from exc
    if not rows or not rows[0]:
        raise DataError(f"{path}, line 1: empty; expected the names of the columns or a record")
    return rows[0]


def expand_column_names(names: Sequence[str]) -> tuple[str, ...]:
    """`I1..I3` is I1, I2, I3; other names are as they stand."""
    expanded: list[str] = []
    for name in names:
        span = re.fullmatch(r"(.*?)([0-9]+)\.\.(.*?)([0-9]+)", name)
        if span is None or span[1] != span[3]:
            expanded.append(name)
            continue
        first, last = int(span[2]), int(span[4])
        if not 0 <= last - first < _MAX_COLUMNS:
            raise DataError(f"--columns: {name} counts down, or too far; write e.g. I1..I13")
        expanded += [f"{span[1]}{number}" for number in range(first, last + 1)]
    return tuple(expanded)
