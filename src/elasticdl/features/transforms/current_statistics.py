"""The current statistics, which `X.from_statistics` uses by default."""

from __future__ import annotations

from contextvars import ContextVar, Token
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from elasticdl.errors import DataError

if TYPE_CHECKING:
    from elasticdl.features.statistics import ColumnStatistics, Statistics

_CURRENT: ContextVar[Statistics | None] = ContextVar("elasticdl_statistics", default=None)


class use_statistics:  # noqa: N801 - used like a function
    """Makes `statistics`, or those in a file, the current ones: from now on, or for a `with` block."""

    def __init__(self, statistics: Statistics | str | Path) -> None:
        self._token: Token[Statistics | None] = _CURRENT.set(_load_statistics(statistics))

    def __enter__(self) -> Statistics:
        current = _CURRENT.get()
        assert current is not None
        return current

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _CURRENT.reset(self._token)


def column_statistics(name: str, statistics: Statistics | str | Path | None) -> ColumnStatistics:
    """Returns the statistics of the column `name` in `statistics`, or in the current ones. DataError without any."""
    data_set = _CURRENT.get() if statistics is None else _load_statistics(statistics)
    if data_set is None:
        raise DataError(
            f"no statistics for column {name!r}: pass them (statistics=…), "
            "or make them current: elasticdl.features.use_statistics(statistics)"
        )
    return data_set.column(name)


def require_number(name: str, key: str, value: float | None) -> float:
    """Returns `value`. Raises DataError if the column has no such number."""
    if value is None:
        raise DataError(f"column {name!r}: its statistics have no {key}; only columns of numbers have one")
    return value


def _load_statistics(statistics: Statistics | str | Path) -> Statistics:
    if not isinstance(statistics, str | Path):
        return statistics
    from elasticdl.features.statistics import Statistics

    return Statistics.load(Path(statistics))
