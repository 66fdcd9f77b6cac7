"""Addresses of tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.data.tables import table_uri
from elasticdl.data.tables.table_uri import DuckdbTable, MaxComputeTable, PostgresTable
from elasticdl.errors import DataError


@pytest.mark.parametrize(
    ("uri", "table"),
    [
        ("duckdb:///data/clicks.db?table=clicks", DuckdbTable("/data/clicks.db", "clicks")),
        ("duckdb://clicks.db?table=raw.clicks", DuckdbTable("clicks.db", "clicks", "raw")),
        ("duckdb://./a.db?schema=main&table=a.b", DuckdbTable("./a.db", "a.b")),
        ("postgresql://db/shop?table=clicks", PostgresTable("shop", "clicks", host="db")),
        ("postgres://ann@db:5433/shop?table=raw.clicks", PostgresTable("shop", "clicks", "raw", "db", 5433, "ann")),
        ("postgresql:///shop?table=clicks&host=/run/pg", PostgresTable("shop", "clicks", host="/run/pg")),
        (
            "postgresql://db/shop?table=clicks&sslmode=require",
            PostgresTable("shop", "clicks", host="db", options=(("sslmode", "require"),)),
        ),
        ("maxcompute://Shop/clicks", MaxComputeTable("Shop", "clicks")),
        ("odps://shop/clicks?partition=ds=20260101", MaxComputeTable("shop", "clicks", "ds=20260101")),
    ],
)
def test_an_address_means_a_table(uri: str, table: table_uri.TableAddress) -> None:
    assert table_uri.is_table_uri(uri)
    assert table_uri.parse_table_uri(uri) == table


@pytest.mark.parametrize("path", ["clicks.csv", "/data/*.parquet", "s3://bucket/a.csv", "file:///a.csv", "duckdb.csv"])
def test_a_path_is_no_table(path: str) -> None:
    assert not table_uri.is_table_uri(path)


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("duckdb:///a.db", "names no table"),
        ("duckdb://?table=a", "names no file"),
        ("postgresql://db/?table=a", "names no database"),
        ("postgresql://db:port/shop?table=a", "a port is wrong"),
        ("postgresql://db/shop?table=a&tabel=b", "has unknown parameters: tabel"),
        ("postgresql://db/shop?table=a&table=b", "twice"),
        ("maxcompute://project", "no table"),
        ("maxcompute://id@project/table", "ODPS_ACCESS_ID"),
    ],
)
def test_a_wrong_address_is_reported_with_an_example(uri: str, words: str) -> None:
    with pytest.raises(DataError, match=words) as raised:
        table_uri.parse_table_uri(uri)

    assert "expected e.g." in str(raised.value)


def test_a_password_is_refused_and_not_repeated() -> None:
    with pytest.raises(DataError, match="PGPASSWORD") as raised:
        table_uri.parse_table_uri("postgresql://ann:swordfish@db/shop?table=clicks")

    assert "swordfish" not in str(raised.value)


def test_the_name_of_a_table_has_no_user() -> None:
    table = table_uri.parse_table_uri("postgresql://ann@db:5433/shop?table=raw.clicks")

    assert str(table) == "postgresql://db:5433/shop?table=raw.clicks"
    assert isinstance(table, PostgresTable)
    assert table.connection_params() == {"host": "db", "port": "5433", "user": "ann", "dbname": "shop"}


@given(st.text(min_size=1), st.text(min_size=1))
def test_what_an_address_says_is_what_it_means(schema: str, name: str) -> None:
    table = PostgresTable("shop", name, schema, "db")

    again = table_uri.parse_table_uri(str(table)) if "." in name or "." not in schema else table

    assert again == table


def test_a_secret_comes_from_the_environment_or_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("swordfish\n")

    assert table_uri.read_secret({"KEY": "a"}, "KEY") == "a"
    assert table_uri.read_secret({"KEY_FILE": str(tmp_path / "key")}, "KEY") == "swordfish"
    assert table_uri.read_secret({}, "KEY") is None
    with pytest.raises(DataError, match="KEY_FILE"):
        table_uri.read_secret({"KEY_FILE": str(tmp_path / "none")}, "KEY")
