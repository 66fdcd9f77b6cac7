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
    """CSV files with the same columns. `columns` names all of their fields."""

    paths: tuple[str, ...]
    columns: tuple[str, ...]
    delimiter: str
    has_header: bool
    selected: tuple[str, ...] = ()  # the columns to analyze; empty: all


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    paths: tuple[str, ...]


def find_input_files(uri: str, columns: Sequence[str], delimiter: str | None) -> CsvFiles | ParquetFiles:
    """Returns the files at `uri`. DataError if they are not of one kind, or do not have the same columns."""
    all_files = tuple(stored_file.find_file(path).path for path in paths.expand_paths(uri, known_only=False))
    kinds = {path: _file_kind(path) for path in all_files}
    # A folder of data may also hold read-me files and markers of success.
    data_files = tuple(path for path in all_files if kinds[path]) or all_files
    first = data_files[0]
    different = next((path for path in data_files if kinds[path] != kinds[first]), None)
    if different is not None:
        raise DataError(
            f"{different} is {kinds[different]} but {first} is {kinds[first]}; use a glob that matches only one kind"
        )
    if kinds[first] == "parquet":
        return ParquetFiles(data_files)
    if kinds[first] in ("tfrecord", "jsonl"):
        raise DataError(f"{first}: records of {kinds[first]} files have no columns; analyze CSV, Parquet or a table")
    return _inspect_csv(data_files, tuple(columns), delimiter)


def _file_kind(path: str) -> str | None:
    plain = path.removesuffix(compression_suffix(path))
    suffix = PurePosixPath(plain).suffix.lower()
    return "csv" if suffix in (".txt", ".data", ".test") else paths.format_from_extension(plain)


def compression_suffix(path: str) -> str:
    """Returns the extension of a compressed file, or ""."""
    suffix = PurePosixPath(path).suffix
    if suffix.lower() in (".zst", ".zip", ".lz4"):
        raise DataError(f"{path}: {suffix} files are not supported; use .gz, .xz or .bz2, or decompress it")
    return suffix if suffix.lower() in _OPENERS else ""


def open_decompressed(path: str, raw: IO[bytes]) -> IO[bytes]:
    """Opens the bytes of a file, which are decompressed as they are read."""
    suffix = compression_suffix(path).lower()
    return cast("IO[bytes]", _OPENERS[suffix](raw, "rb") if suffix else io.BufferedReader(cast(Any, raw)))


def field_name(index: int) -> str:
    """Returns the name of a field during the analysis: `A` and `a` are the same name in databases, but not in files."""
    return f"field {index}"


def _inspect_csv(files: tuple[str, ...], columns: tuple[str, ...], delimiter: str | None) -> CsvFiles:
    first = files[0]
    line = _first_line(first)
    split_by = delimiter or _detect_delimiter(first, line)
    fields = _split_fields(first, line, split_by)
    _check_delimiter(first, line, fields, split_by, columns)
    names, selected, header_lines = _resolve_columns(first, fields, expand_column_names(columns))
    for path in files[1:]:
        others = _split_fields(path, _first_line(path), split_by)
        if header_lines and tuple(others) != tuple(fields):
            raise DataError(
                f"{path}, line 1: its columns ({column_names.format_names(others)}) are not those of {first}"
            )
        if len(others) != len(fields):
            raise DataError(f"{path}, line 1: {len(others)} fields, but {first} has {len(fields)}")
    return CsvFiles(files, names, split_by, bool(header_lines), selected)


def _resolve_columns(
    path: str, fields: list[str], columns: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    try:
        names, selected, lines = column_names.resolve_columns(path, fields, columns)
    except DataError as exc:
        raise DataError(str(exc).replace("data.columns", "--columns")) from exc
    # A record mistaken for a header contains values: numbers, or nothing.
    values = [name for name in names if not name.strip() or re.fullmatch(r"[+-]?[0-9.]+", name.strip())]
    if lines and not columns and values:
        raise DataError(
            f"{path}, line 1: not a header: {column_names.format_names(values)} cannot be names of columns; "
            f"if the file has no header, name all {len(fields)} columns: --columns label,I1..I{len(fields) - 1}"
        )
    return names, selected, lines


def _check_delimiter(path: str, line: str, fields: list[str], delimiter: str, columns: tuple[str, ...]) -> None:
    if len(fields) > 1 or len(columns) == 1:
        return
    counts = {mark: line.count(mark) for mark in ",\t;|" if mark != delimiter and mark in line}
    if counts:
        mark = max(counts, key=lambda mark: counts[mark])
        raise DataError(
            f"{path}, line 1: one column when split at {delimiter!r}, but the line contains {mark!r} {counts[mark]} "
            f"times; set --delimiter {'tab' if mark == chr(9) else repr(mark)}"
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
        raise DataError(f"{path}, line 1: longer than {_MAX_HEADER_BYTES} bytes; this is not a CSV file")
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
    """Expands `I1..I3` to I1, I2, I3; other names stay as they are."""
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
