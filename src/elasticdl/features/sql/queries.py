"""Generates the SQL of an analysis from its columns and options, without a database."""

from __future__ import annotations

from collections.abc import Sequence

from elasticdl.features.sql.dialects import ISO_DATE, PLAIN_NUMBER, SCIENTIFIC_NUMBER, Dialect, RowDialect
from elasticdl.features.sql.interface import AnalysisOptions, ColumnForm, TableColumn

MAX_DOUBLE = "1.7976931348623157e308"
MAX_FRACTIONS = 1000
"""Numbers with fractions have a vocabulary if at most this many are distinct. Whole numbers, which may be ids, always
have one."""

MAX_EXAMPLES = 5
"""The number of examples of values that are unlike most values of their column."""


def text_expression(column: TableColumn, options: AnalysisOptions, dialect: Dialect) -> str:
    """Returns the SQL of a value as text; NULL if it is missing, infinite or not a number."""
    name = dialect.identifier(column.engine_name)
    match column.form:
        case ColumnForm.TRUTH:
            return f"CASE WHEN {name} THEN '1' WHEN NOT {name} THEN '0' END"
        case ColumnForm.REAL:
            finite = f"ABS(CAST({name} AS {dialect.double})) <= {MAX_DOUBLE}"
            return f"CASE WHEN {finite} THEN CAST({name} AS {dialect.text}) END"
        case ColumnForm.LIST:
            return dialect.join_list(name, options.separator)
        case ColumnForm.ZONED:
            return f"CAST(({name} AT TIME ZONE 'UTC') AS {dialect.text})"
    return f"CAST({name} AS {dialect.text})"


def sampled_relation(
    relation: str, options: AnalysisOptions, dialect: Dialect, can_sample: bool = True, key: Sequence[str] = ()
) -> str:
    """Returns the SQL after FROM: all rows, a sample, or the first rows in the order of `key`, if there is one.

    With `can_sample=False`, as for views, rows are chosen by random().
    """
    if options.sample < 1 and can_sample:
        relation = dialect.sample(relation, options.sample, options.seed)
    elif options.sample < 1:
        relation = f"(SELECT * FROM {relation} WHERE random() < {options.sample:.8f}) sampled"
    if options.max_rows is not None:
        order = f" ORDER BY {', '.join(map(dialect.identifier, key))}" if key else ""
        relation = f"(SELECT * FROM {relation}{order} LIMIT {options.max_rows:d}) first_rows"
    return relation


def count_query(relation: str, columns: Sequence[TableColumn], options: AnalysisOptions, dialect: RowDialect) -> str:
    """Returns the query of (k, v, n): value v of column k occurs n times. It scans a table stored in rows once."""
    cells = dialect.unpivot(relation, [text_expression(column, options, dialect) for column in columns])
    return f"SELECT k, v, COUNT(*) AS n FROM (\n  {cells}\n) all_cells GROUP BY k, v"


def count_column_query(
    relation: str, index: int, column: TableColumn, options: AnalysisOptions, dialect: Dialect
) -> str:
    """Returns the query of (k, v, n) for one column of a table stored in columns; it reads only that column."""
    name = dialect.identifier(column.engine_name)
    grouped = f"SELECT {name}, COUNT(*) AS n FROM {relation} GROUP BY {name}"
    return f"SELECT {index} AS k, {text_expression(column, options, dialect)} AS v, n FROM ({grouped}) grouped"


def summary_query(
    counts: str, columns: Sequence[TableColumn], options: AnalysisOptions, dialect: Dialect, inline: str = ""
) -> str:
    """Returns the query of rows (k, what, v, n, x) about each column.

    It reads the relation `counts`, or the query `inline` instead if there is no such table.
    """
    parts = ([("counted_cells", inline)] if inline else []) + [
        ("typed", _typed_query("counted_cells" if inline else counts, columns, dialect)),
        ("summed", _summed_query(options, dialect)),
        ("placed", _placed_query(dialect)),
        ("centre", "SELECT k, MIN(y) AS low, MAX(y) AS high, SUM(y * n) / MAX(present) AS mean FROM placed GROUP BY k"),
        ("pieces_counted", _pieces_query(options, dialect)),
        ("ranked", _ranked_query(options, dialect)),
    ]
    expressions = ",\n".join(f"{name} AS {dialect.materialized}(\n{text}\n)" for name, text in parts)
    every = "counted_cells" if inline else counts
    return f"WITH {expressions}\n{_summary_rows_query(every, options, dialect)}"


def _typed_query(counts: str, columns: Sequence[TableColumn], dialect: Dialect) -> str:
    number = f"CAST(v AS {dialect.double})"
    is_number = (
        f"LENGTH(v) < 300 AND ({dialect.matches('v', PLAIN_NUMBER)} OR {dialect.matches('v', SCIENTIFIC_NUMBER)})"
    )
    native = [str(index) for index, column in enumerate(columns) if column.form in (ColumnForm.WHOLE, ColumnForm.REAL)]
    native_case = f"WHEN k IN ({', '.join(native)}) THEN {number} " if native else ""
    return (
        f"SELECT k, v, n, CASE {native_case}WHEN {is_number} THEN {number} END AS x,\n"
        f"  CASE WHEN {dialect.matches('v', ISO_DATE)} THEN {dialect.epoch_seconds('v')} END AS s\n"
        f"FROM {counts} WHERE v IS NOT NULL AND TRIM(v) <> ''"
    )


def _summed_query(options: AnalysisOptions, dialect: Dialect) -> str:
    def where(condition: str, name: str) -> str:
        return f"CAST(SUM(CASE WHEN {condition} THEN n ELSE 0 END) AS {dialect.bigint}) AS {name}"

    separator = dialect.literal(options.separator)
    shorter = f"LENGTH(REPLACE(v, {separator}, ''))"
    longest = f"MAX((LENGTH(v) - {shorter}) / {len(options.separator)} + 1)"
    return (
        f"SELECT k, CAST(SUM(n) AS {dialect.bigint}) AS present, COUNT(*) AS kinds,\n"
        f"  {where('x IS NOT NULL', 'numbers')}, {where('s IS NOT NULL', 'dates')},\n"
        f"  {where('x <> FLOOR(x)', 'fractions')}, {where(f'{shorter} < LENGTH(v)', 'separated')},\n"
        f"  CAST({longest} AS {dialect.bigint}) AS longest\n"
        f"FROM typed GROUP BY k"
    )


def _placed_query(dialect: Dialect) -> str:
    """Returns numbers and dates in order, each with the number of rows up to it."""
    upto = "SUM(n) OVER (PARTITION BY k ORDER BY y ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    return (
        f"SELECT k, n, y, present, CAST({upto} AS {dialect.bigint}) AS upto FROM (\n"
        f"  SELECT t.k AS k, t.n AS n, u.present AS present,\n"
        f"    CASE WHEN u.numbers = u.present THEN t.x ELSE t.s END AS y\n"
        f"  FROM typed t JOIN summed u ON t.k = u.k WHERE u.numbers = u.present OR u.dates = u.present\n"
        f") ordered"
    )


IS_SEQUENCE_CONDITION = "u.separated * 2 >= u.present"


def _pieces_query(options: AnalysisOptions, dialect: Dialect) -> str:
    """Returns the values that sequences consist of, and their counts."""
    sequences = (
        f"(SELECT t.k AS k, t.v AS v, t.n AS n FROM typed t JOIN summed u ON t.k = u.k WHERE {IS_SEQUENCE_CONDITION})"
    )
    pieces = dialect.split_join(f"{sequences} sequences", "sequences.v", options.separator)
    return (
        f"SELECT k, piece AS v, CAST(SUM(n) AS {dialect.bigint}) AS n FROM {pieces} WHERE piece <> '' GROUP BY k, piece"
    )


def _ranked_query(options: AnalysisOptions, dialect: Dialect) -> str:
    """Returns the vocabularies. Rare values, usually the majority, are left out before sorting."""
    often = f"n >= {options.min_count:d}"
    rank = f"ROW_NUMBER() OVER (PARTITION BY k ORDER BY n DESC, {dialect.order_by_code_point('v')})"
    return (
        f"SELECT k, v, n, {rank} AS value_rank FROM (\n"
        f"  SELECT t.k AS k, t.v AS v, t.n AS n FROM typed t JOIN summed u ON t.k = u.k\n"
        f"  WHERE t.{often} AND NOT ({IS_SEQUENCE_CONDITION})\n"
        f"    AND (u.numbers < u.present OR u.fractions = 0 OR u.kinds <= {MAX_FRACTIONS})\n"
        f"  UNION ALL SELECT k, v, n FROM pieces_counted WHERE {often}\n"
        f") words"
    )


def _summary_rows_query(every: str, options: AnalysisOptions, dialect: Dialect) -> str:
    def row(key: str, source: str, *, v: str = "NULL", n: str = "NULL", x: str = "NULL", group: bool = False) -> str:
        return (
            f"SELECT k, '{key}' AS what, CAST({v} AS {dialect.text}) AS v, CAST({n} AS {dialect.bigint}) AS n, "
            f"CAST({x} AS {dialect.double}) AS x FROM {source}" + (" GROUP BY k" if group else "")
        )

    def share(count: str) -> str:
        return f"FLOOR(CAST({count} AS {dialect.double}) * {options.quantile_steps:d} / present)"

    order = f"t.n DESC, {dialect.order_by_code_point('t.v')}"
    mixed = "(u.numbers * 2 >= u.present AND u.numbers < u.present AND t.x IS NULL)"
    undated = "(u.dates * 2 >= u.present AND u.dates < u.present AND t.s IS NULL)"
    odd = (
        f"(SELECT t.k AS k, t.v AS v, t.n AS n, ROW_NUMBER() OVER (PARTITION BY t.k ORDER BY {order}) AS value_rank\n"
        f"  FROM typed t JOIN summed u ON t.k = u.k WHERE {mixed} OR {undated}) odd"
    )
    spread = "SQRT(SUM(p.n * (p.y - c.mean) * (p.y - c.mean)) / MAX(p.present))"
    deviations = (
        f"(SELECT p.k AS k, {spread} AS deviation FROM placed p JOIN centre c ON p.k = c.k GROUP BY p.k) deviations"
    )
    rows = [
        row("rows", every, n="SUM(n)", group=True),
        *(row(key, "summed", n=key) for key in ("present", "kinds", "numbers", "dates", "fractions", "separated")),
        row("longest", "summed", n="longest"),
        row("minimum", "centre", x="low"),
        row("maximum", "centre", x="high"),
        row("mean", "centre", x="mean"),
        row("deviation", deviations, x="deviation"),
        row("quantile", f"placed WHERE upto = n OR {share('upto')} > {share('upto - n')}", n="upto", x="y"),
        row("words", "pieces_counted", n="COUNT(*)", group=True),
        row("frequent", "ranked", n="COUNT(*)", group=True),
        row("value", f"ranked WHERE value_rank <= {options.max_values:d}", v="v", n="n", x="value_rank"),
        row("odd", f"{odd} WHERE value_rank <= {MAX_EXAMPLES}", v="v", n="n"),
    ]
    return "\nUNION ALL\n".join(rows)
