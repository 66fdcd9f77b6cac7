"""SQL dialects of DuckDB, PostgreSQL and MaxCompute. All names and values in SQL are quoted here."""

from __future__ import annotations

from typing import Protocol

from elasticdl.errors import DataError

# The same in every dialect. Every database casts what they match without an error: exponents are below 300, and a
# plain number is shorter than 300 letters.
PLAIN_NUMBER = r"^ *[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+) *$"
SCIENTIFIC_NUMBER = r"^ *[+-]?([0-9]{1,8}([.][0-9]{0,20})?|[.][0-9]{1,20})[eE][+-]?[12]?[0-9]?[0-9] *$"
ISO_DATE = (
    r"^[12][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    r"([ T]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,9})?)?Z?)?$"
)


class Dialect(Protocol):
    """One per database; it has no state."""

    name: str
    text: str  # the type of text of any length
    double: str
    bigint: str
    materialized: str  # after AS: what keeps a common table expression from being computed twice

    def matches(self, value: str, pattern: str) -> str: ...

    def epoch_seconds(self, value: str) -> str:
        """Seconds since 1970 of a text that ISO_DATE matches; NULL for a day that the month does not have."""
        ...

    def identifier(self, name: str) -> str: ...

    def literal(self, value: str) -> str: ...

    def order_by_code_point(self, value: str) -> str:
        """An expression to order by: by code point, independent of the language of the database."""
        ...

    def split_join(self, relation: str, value: str, separator: str) -> str:
        """`relation` joined with the pieces of `value` in a column `piece`."""
        ...

    def join_list(self, values: str, separator: str) -> str:
        """A list of values as one text."""
        ...

    def sample(self, relation: str, share: float, seed: int) -> str:
        """A sample of about `share` of the rows, each chosen on its own, the same for the same seed where it can be."""
        ...


class RowDialect(Dialect, Protocol):
    """A database that stores tables in rows: all columns are counted in one scan by `queries.count_query`."""

    def unpivot(self, relation: str, texts: list[str]) -> str:
        """Rows (k, v): each of `texts` of each row of `relation`, with its number; one scan."""
        ...


def check_identifier(name: str) -> str:
    if not name or "\0" in name:
        raise DataError(f"{name!r} cannot be the name of a column or table: it is empty or contains a zero byte")
    return name


def double_quoted(name: str) -> str:
    return '"' + check_identifier(name).replace('"', '""') + '"'


def single_quoted(value: str) -> str:
    """Quotes text as in standard SQL, where the backslash is an ordinary letter."""
    if "\0" in value:
        raise DataError(f"{value!r}: SQL cannot contain a zero byte")
    return "'" + value.replace("'", "''") + "'"


class DuckDbDialect:
    """DuckDB stores tables in columns, which are counted one by one by `queries.count_column_query`."""

    name = "duckdb"
    text = "VARCHAR"
    double = "DOUBLE"
    bigint = "BIGINT"
    materialized = "MATERIALIZED "

    def matches(self, value: str, pattern: str) -> str:
        return f"regexp_matches({value}, {self.literal(pattern)})"

    def epoch_seconds(self, value: str) -> str:
        return f"epoch(TRY_CAST({value} AS TIMESTAMP))"

    def identifier(self, name: str) -> str:
        return double_quoted(name)

    def literal(self, value: str) -> str:
        return single_quoted(value)

    def order_by_code_point(self, value: str) -> str:
        return value

    def split_join(self, relation: str, value: str, separator: str) -> str:
        return f"{relation}, UNNEST(string_split({value}, {self.literal(separator)})) AS pieces(piece)"

    def join_list(self, values: str, separator: str) -> str:
        return f"array_to_string({values}, {self.literal(separator)})"

    def sample(self, relation: str, share: float, seed: int) -> str:
        return f"(SELECT * FROM {relation} USING SAMPLE {100 * share:.6f}% (bernoulli, {seed:d}))"


class PostgresDialect:
    name = "postgresql"
    text = "text"
    double = "double precision"
    bigint = "bigint"
    materialized = "MATERIALIZED "

    def matches(self, value: str, pattern: str) -> str:
        return f"{value} ~ {self.literal(pattern)}"

    def epoch_seconds(self, value: str) -> str:
        # A cast of 30 February is an error here: count days from the first of the month and compare the month.
        first = f"(substr({value}, 1, 7) || '-01')::date"
        day = f"({first} + substr({value}, 9, 2)::int - 1)"
        clock = [
            f"coalesce(nullif(substr({value}, {start}, 2), '')::int, 0) * {seconds}"
            for start, seconds in ((12, 3600), (15, 60))
        ]
        seconds_of_minute = f"coalesce(nullif(rtrim(substr({value}, 18), 'Z'), '')::double precision, 0)"
        epoch = f"extract(epoch FROM {day})::double precision + {' + '.join(clock)} + {seconds_of_minute}"
        return f"CASE WHEN to_char({day}, 'YYYY-MM') = substr({value}, 1, 7) THEN {epoch} END"

    def identifier(self, name: str) -> str:
        return double_quoted(name)

    def literal(self, value: str) -> str:
        # In E'' a backslash escapes; in plain quotes its meaning depends on a setting of the server.
        return "E" + single_quoted(value).replace("\\", "\\\\")

    def order_by_code_point(self, value: str) -> str:
        return f'{value} COLLATE "C"'

    def split_join(self, relation: str, value: str, separator: str) -> str:
        return f"{relation}, LATERAL unnest(string_to_array({value}, {self.literal(separator)})) AS pieces(piece)"

    def join_list(self, values: str, separator: str) -> str:
        return f"array_to_string({values}, {self.literal(separator)})"

    def sample(self, relation: str, share: float, seed: int) -> str:
        return f"{relation} TABLESAMPLE BERNOULLI ({100 * share:.6f}) REPEATABLE ({seed:d})"

    def unpivot(self, relation: str, texts: list[str]) -> str:
        rows = ",\n    ".join(f"({index}, {text})" for index, text in enumerate(texts))
        return f"SELECT cells.k, cells.v FROM {relation}, LATERAL (VALUES\n    {rows}\n  ) AS cells(k, v)"


class MaxComputeDialect:
    name = "maxcompute"
    text = "STRING"
    double = "DOUBLE"
    bigint = "BIGINT"
    materialized = ""

    def matches(self, value: str, pattern: str) -> str:
        return f"{value} RLIKE {self.literal(pattern)}"

    def epoch_seconds(self, value: str) -> str:
        days = f"DATEDIFF(CAST(SUBSTR({value}, 1, 10) AS DATE), DATE '1970-01-01', 'dd')"
        clock = [
            f"COALESCE(CAST(NULLIF(SUBSTR({value}, {start}, 2), '') AS BIGINT), 0) * {seconds}"
            for start, seconds in ((12, 3600), (15, 60))
        ]
        seconds_of_minute = f"COALESCE(CAST(NULLIF(REPLACE(SUBSTR({value}, 18), 'Z', ''), '') AS DOUBLE), 0)"
        return f"CAST({days} * 86400 + {' + '.join(clock)} AS DOUBLE) + {seconds_of_minute}"

    def identifier(self, name: str) -> str:
        return "`" + check_identifier(name).replace("`", "``") + "`"

    def literal(self, value: str) -> str:
        # In MaxCompute a backslash escapes, and two quotes in a row end one text and begin another.
        if "\0" in value:
            raise DataError(f"{value!r}: SQL cannot contain a zero byte")
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def order_by_code_point(self, value: str) -> str:
        return value

    def split_join(self, relation: str, value: str, separator: str) -> str:
        # SPLIT takes a regular expression.
        escaped = "".join(f"[{letter}]" if letter not in "^\\" else f"\\{letter}" for letter in separator)
        return f"{relation} LATERAL VIEW EXPLODE(SPLIT({value}, {self.literal(escaped)})) pieces AS piece"

    def join_list(self, values: str, separator: str) -> str:
        return f"ARRAY_JOIN({values}, {self.literal(separator)})"

    def sample(self, relation: str, share: float, seed: int) -> str:
        return f"(SELECT * FROM {relation} WHERE RAND({seed:d}) < {share:.8f}) sampled"

    def unpivot(self, relation: str, texts: list[str]) -> str:
        rows = ",\n    ".join(f"{index}, {text}" for index, text in enumerate(texts))
        return f"SELECT k, v FROM {relation} LATERAL VIEW STACK({len(texts)},\n    {rows}\n  ) cells AS k, v"
