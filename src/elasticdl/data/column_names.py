"""Column names: which a CSV file has, which are read, and how messages list them."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from elasticdl.errors import DataError, SpecError


def resolve_columns(
    path: str, first: list[str], names: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    """Returns all fields, the columns to read and the number of header lines, from the first line and `names`."""
    if len(set(names)) != len(names):
        raise DataError(f"data.columns names a column twice: {format_names(names)}; name each once")
    if not names:
        if len(set(first)) != len(first):
            raise DataError(f"{path}, line 1: the header names a column twice: {format_names(first)}; {_NAME_THEM}")
        if all(_is_number(name) for name in first):
            raise DataError(f"{path}, line 1: expected a header, got numbers: {format_names(first)}; {_NAME_THEM}")
        return tuple(first), tuple(first), 1
    missing = [name for name in names if name not in first]
    if not missing:
        return tuple(first), names, 1
    if any(name in first and not _is_number(name) for name in names):
        raise DataError(
            f"{path}, line 1: no column {format_names(missing)} in the header {format_names(first)}; "
            f"correct data.columns"
        )
    if len(names) != len(first):
        raise DataError(
            f"{path}, line 1: data.columns gives {len(names)} names ({format_names(names)}) and the line has "
            f"{len(first)} fields ({format_names(first)}), none of them so named; name every field, or columns that "
            f"the header has"
        )
    return names, names, 0


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
    """Lists the first few names for a message."""
    shown = ", ".join(repr(name) for name in names[:8])
    return shown + (f", … {len(names) - 8} more" if len(names) > 8 else "")


def check_id_column(name: str, columns: Sequence[str]) -> None:
    """Raises SpecError, with the existing columns, if the data has no column called `name`."""
    if name not in columns:
        have = f"there are {format_names(columns)}" if columns else "its records have no columns"
        near = get_close_matches(name, columns, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise SpecError(f"prediction.id_column (--id_column): no column {name!r} in the data; {have}{hint}")
