"""Addresses of tables in databases. Every other address is a path of files.

    duckdb:///data/clicks.db?table=clicks
    postgresql://reader@db.example.org:5432/shop?table=public.clicks&key=id
    maxcompute://project/clicks?partition=ds=20260101

An address never has a password, because it is written to job descriptions, logs and statistics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from elasticdl.errors import DataError


@dataclass(frozen=True, slots=True)
class DuckdbTable:
    """A table or view of a DuckDB file."""

    path: str
    table: str
    schema: str = "main"

    def __str__(self) -> str:
        return f"duckdb://{quote(self.path)}?{_table_query(self.schema, 'main', self.table)}"


@dataclass(frozen=True, slots=True)
class PostgresTable:
    """A table or view of PostgreSQL. Parts that are empty or None come from libpq: PGHOST, PGUSER, ~/.pgpass, …"""

    database: str
    table: str
    schema: str = "public"
    host: str = ""
    port: int | None = None
    user: str = ""
    options: tuple[tuple[str, str], ...] = ()  # for the connection, such as sslmode
    key: tuple[str, ...] = ()  # columns that order its rows; (): the primary key

    def __str__(self) -> str:
        port = f":{self.port}" if self.port is not None else ""
        host = f"[{self.host}]" if ":" in self.host else quote(self.host, safe="")
        return f"postgresql://{host}{port}/{quote(self.database)}?{_table_query(self.schema, 'public', self.table)}"

    def connection_params(self) -> dict[str, str]:
        """Returns parameters for libpq without a password, which comes from the environment or a file."""
        params = {"host": self.host, "port": str(self.port or ""), "user": self.user, "dbname": self.database}
        return {name: value for name, value in params.items() if value} | dict(self.options)


@dataclass(frozen=True, slots=True)
class MaxComputeTable:
    """A table of MaxCompute, or one partition of it: `ds=20260101,hour=01`."""

    project: str
    table: str
    partition: str = ""

    def __str__(self) -> str:
        partition = f"?partition={quote(self.partition, safe='=,')}" if self.partition else ""
        return f"maxcompute://{quote(self.project)}/{quote(self.table)}{partition}"


TableAddress = DuckdbTable | PostgresTable | MaxComputeTable
"""`str()` of one is its address without user and password, for logs and statistics."""

_SCHEMES = {"duckdb": "duckdb", "postgresql": "postgresql", "postgres": "postgresql"}
_SCHEMES |= {"maxcompute": "maxcompute", "odps": "maxcompute"}
_POSTGRES_OPTIONS = ("sslmode", "sslrootcert", "sslcert", "sslkey", "connect_timeout", "passfile", "application_name")
_EXAMPLES = {
    "duckdb": "duckdb:///data/clicks.db?table=clicks",
    "postgresql": "postgresql://user@host:5432/database?table=clicks",
    "maxcompute": "maxcompute://project/table",
}


def is_table_uri(uri: str) -> bool:
    return uri.partition("://")[0].lower() in _SCHEMES and "://" in uri


def parse_table_uri(uri: str) -> TableAddress:
    """Parses the address of a table. A DataError says what is wrong, and never repeats a password."""
    scheme = _SCHEMES[uri.partition("://")[0].lower()]
    try:
        parts = urlsplit(uri)
        secret, port = parts.password, parts.port
    except ValueError as exc:
        raise _address_error(scheme, "is not valid: a host or a port is wrong") from exc
    if secret is not None:
        raise _address_error(
            scheme,
            "has a password, which would appear in logs and job descriptions; leave it out and set PGPASSWORD, or name "
            "a file in PGPASSFILE",
        )
    # A list, not parse_qs: a parameter given twice is an error, and not dropped.
    parameters = parse_qsl(parts.query, keep_blank_values=True)
    query = dict(parameters)
    if len(query) != len(parameters):
        raise _address_error(scheme, "gives a parameter twice")
    match scheme:
        case "duckdb":
            return _duckdb(parts, query)
        case "postgresql":
            return _postgres(parts, port, query)
    return _maxcompute(parts, query)


def _duckdb(parts: SplitResult, query: Mapping[str, str]) -> DuckdbTable:
    _check_parameters("duckdb", query, ("table", "schema"))
    # duckdb:///a.db is /a.db, and duckdb://a.db and duckdb://./a.db are relative.
    path = unquote(parts.netloc + parts.path)
    if not path:
        raise _address_error("duckdb", "names no file")
    schema, table = _schema_and_table("duckdb", query, "main")
    return DuckdbTable(path, table, schema)


def _postgres(parts: SplitResult, port: int | None, query: Mapping[str, str]) -> PostgresTable:
    _check_parameters("postgresql", query, ("table", "schema", "host", "key", *_POSTGRES_OPTIONS))
    schema, table = _schema_and_table("postgresql", query, "public")
    database = unquote(parts.path.strip("/"))
    if not database:
        raise _address_error("postgresql", "names no database")
    options = tuple((name, query[name]) for name in _POSTGRES_OPTIONS if name in query)
    host = query.get("host") or unquote(parts.hostname or "")
    key = tuple(name.strip() for name in query.get("key", "").split(",") if name.strip())
    return PostgresTable(database, table, schema, host, port, unquote(parts.username or ""), options, key)


def _maxcompute(parts: SplitResult, query: Mapping[str, str]) -> MaxComputeTable:
    _check_parameters("maxcompute", query, ("table", "partition"))
    table = query.get("table") or unquote(parts.path.strip("/"))
    # Not `hostname`, which is lower case.
    if "@" in parts.netloc:
        raise _address_error("maxcompute", "has a user; set ODPS_ACCESS_ID and ODPS_ACCESS_KEY instead")
    if not parts.netloc or not table:
        raise _address_error("maxcompute", "names no project or no table")
    return MaxComputeTable(unquote(parts.netloc), table, query.get("partition", ""))


def _schema_and_table(scheme: str, query: Mapping[str, str], schema: str) -> tuple[str, str]:
    """Returns schema and table. `table=a.b` is b of schema a, unless `schema` is given: then the name has a dot."""
    table = query.get("table", "")
    if not table:
        raise _address_error(scheme, "names no table")
    if "schema" in query:
        return query["schema"] or schema, table
    before, dot, after = table.partition(".")
    return (before, after) if dot and before and after else (schema, table)


def _table_query(schema: str, usual: str, table: str) -> str:
    if "." in table:
        return f"schema={quote(schema, safe='')}&table={quote(table, safe='')}"
    return f"table={quote(table if schema == usual else f'{schema}.{table}', safe='.')}"


def _check_parameters(scheme: str, query: Mapping[str, str], allowed: tuple[str, ...]) -> None:
    unknown = [name for name in query if name not in allowed]
    if unknown:
        raise _address_error(scheme, f"has unknown parameters: {', '.join(unknown)}; there are {', '.join(allowed)}")


def _address_error(scheme: str, problem: str) -> DataError:
    return DataError(f"the address of the {scheme} table {problem}; expected e.g. {_EXAMPLES[scheme]}")


def read_secret(environ: Mapping[str, str], name: str) -> str | None:
    """Reads the secret `name`, or the file named by `name`_FILE. Returns None if neither is set."""
    if environ.get(name):
        return environ[name]
    path = environ.get(f"{name}_FILE")
    if not path:
        return None
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as exc:
        raise DataError(f"{name}_FILE: cannot read the secret: {exc}") from exc
