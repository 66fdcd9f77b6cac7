"""Statistics of a data set as a table for the terminal."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elasticdl.features.statistics import ColumnKind, ColumnStatistics, Statistics

_MAX_TOP_VALUES = 3
_HEADINGS = (
    "column",
    "type",
    "count",
    "missing",
    "distinct",
    "min",
    "median",
    "max",
    "mean",
    "deviation",
    "top values",
)


def statistics_table(statistics: Statistics) -> RenderableType:
    """A row for each column; for a sample, with standard errors and notes on how to read them."""
    table = Table(title=Text(f"{statistics.source}: {statistics.rows:,} rows"), title_justify="left")
    for heading in _HEADINGS:
        is_text = heading in ("column", "type", "top values")
        table.add_column(
            heading, justify="left" if is_text else "right", no_wrap=heading != "top values", overflow="fold"
        )
    for name, column in statistics.columns.items():
        title = f"{name} (label)" if name == statistics.label else name
        cells = [title, *_cells(column, statistics)]
        # Names and values are the data's: brackets in them are no markup.
        table.add_row(*(Text(cell) for cell in cells))
    return Group(table, *(Text(note) for note in statistics_notes(statistics)))


def statistics_notes(statistics: Statistics) -> list[str]:
    """Notes on how to read the figures."""
    lines = [
        f"{name}: {column.exceptions:,} values are not like the others, e.g. "
        + ", ".join(repr(value) for value in column.exception_examples)
        + "; the column is treated as text"
        for name, column in statistics.columns.items()
        if column.exceptions
    ]
    if statistics.sample_fraction < 1:
        rows = statistics.rows
        lines.append(
            f"A sample of {statistics.sample_fraction:g} of all rows. Standard errors: of a mean ± as shown; of a "
            f"share p of rows (missing, a value's) sqrt(p (1 - p) / {rows:,}), at most {0.5 / rows**0.5:.2%}; "
            f"a quantile is "
            f"off by that share of ranks. Minimum, maximum and distinct are those of the sample; those of all rows "
            f"lie farther out."
        )
    return lines


def _cells(column: ColumnStatistics, statistics: Statistics) -> list[str]:
    present = statistics.rows - column.missing
    share = column.missing / statistics.rows if statistics.rows else 0.0
    middle = column.quantiles[len(column.quantiles) // 2] if column.quantiles else None
    kind = f"{column.kind} list" if column.separator else str(column.kind)
    mean = _format_value(column.mean, column.kind)
    if (
        statistics.sample_fraction < 1
        and column.standard_deviation is not None
        and present
        and column.kind is ColumnKind.NUMBER
    ):
        mean += f" ± {column.standard_deviation / present**0.5:.2g}"
    deviation = "" if column.kind is ColumnKind.DATE else _format_value(column.standard_deviation, ColumnKind.NUMBER)
    top = ", ".join(
        f"{_shorten(value)} {count / max(present, 1):.0%}"
        for value, count in zip(column.values[:_MAX_TOP_VALUES], column.counts, strict=False)
    )
    return [
        "mixed" if column.exceptions else kind,
        f"{present:,}",
        f"{share:.1%}",
        f"{column.distinct:,}" + ("" if column.is_distinct_exact else "+"),
        _format_value(column.minimum, column.kind),
        _format_value(middle, column.kind),
        _format_value(column.maximum, column.kind),
        mean,
        deviation,
        top,
    ]


def _format_value(value: float | None, kind: ColumnKind) -> str:
    if value is None:
        return ""
    if kind is ColumnKind.DATE:
        moment = datetime.fromtimestamp(value, UTC)
        return f"{moment:%Y-%m-%d}" if value % 86_400 == 0 else f"{moment:%Y-%m-%d %H:%M}"
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e12 else f"{value:.4g}"


def _shorten(value: str) -> str:
    return value if len(value) <= 16 else value[:15] + "…"
