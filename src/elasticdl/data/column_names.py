"""Column names: which a CSV file has, which are read, and how messages list them."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from elasticdl.errors import DataError, SpecError


def resolve_columns(
    path: str, first: list[str], given: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    """All fields, the columns to read and the number of header lines, from the first line and the given names."""
    if len(set(given)) != len(given):
        raise DataError(f"data.columns names a column twice: {format_names(given)}; name each once")
    if not given:
        if len(set(first)) != len(first):
            raise DataError(f"{path}, line 1: the header names a column twice: {format_names(first)}; {_NAME_THEM}")
        if all(_is_number(name) for name in first):
            raise DataError(f"{path}, line 1: expected a header, got numbers: {format_names(first)}; {_NAME_THEM}")
        return tuple(first), tuple(first), 1
    missing = [name for name in given if name not in first]
    if not missing:
        return tuple(first), given, 1
    if any(name in first and not _is_number(name) for name in given):
        raise DataError(
            f"{path}, line 1: no column {format_names(missing)} in the header {format_names(first)}; "
            f"correct data.columns"
        )
    if len(given) != len(first):
        raise DataError(
            f"{path}, line 1: data.columns gives {len(given)} names ({format_names(given)}) and the line has "
            f"{len(first)} fields ({format_names(first)}), none of them so named; name every field, or columns that "
            f"the header has"
        )
    return given, given, 0


_NAME_THEM = (
    "if the file has no header line, give the names of all its columns in data.columns; "
    "if it has, give those to read, each once"
)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def format_names(names: Sequence[str]) -> str:
    """The first few names, for a message."""
    shown = ", ".join(repr(name) for name in names[:8])
    return shown + (f", … {len(names) - 8} more" if len(names) > 8 else "")


def check_id_column(name: str, columns: Sequence[str]) -> None:
    """SpecError, with the columns there are, where the data has none called `name`."""
    if name not in columns:
        have = f"there are {format_names(columns)}" if columns else "its records have no columns"
        near = get_close_matches(name, columns, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise SpecError(f"prediction.id_column (--id_column): no column {name!r} in the data; {have}{hint}")
