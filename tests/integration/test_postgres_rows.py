from __future__ import annotations

import datetime
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from elasticdl.data import ColumnarSource, open_source
from elasticdl.errors import DataError, DataUnavailable
from elasticdl.spec import DataSpec
from tests import postgres
from tests.postgres import PASSWORD, PostgresServer


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres.server() as postgres_server:
        yield postgres_server


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)


def ids(source: Any, indices: Any) -> list[int]:
    return [record["id"] for record in source.read(np.asarray(indices))]


def test_rows_have_numbers_in_the_order_of_the_key(server: PostgresServer, tmp_path: Path) -> None:
    server.execute(
        "CREATE TABLE numbers (id bigint PRIMARY KEY, name text)",
        "INSERT INTO numbers SELECT 7 * n, 'n' || n FROM generate_series(2999, 0, -1) AS n",
        "DELETE FROM numbers WHERE id % 10 = 3",
    )
    source = open_source(server.address("numbers"), DataSpec(), tmp_path)
    numbers = [7 * n for n in range(3000) if 7 * n % 10 != 3]

    shuffled = np.random.default_rng(0).permutation(len(source))
    assert len(source) == len(numbers) == 2700
    assert ids(source, shuffled) == [numbers[n] for n in shuffled]
    assert ids(source, []) == []
    source.close()


def test_values_have_types_and_null_differs_from_empty_text(server: PostgresServer) -> None:
    server.execute(
        """CREATE TABLE kinds (a int, b int, s text, x real, n numeric(10,2), y boolean, d date, t timestamptz,
           j jsonb, v varchar(9), PRIMARY KEY (b, a))""",
        """INSERT INTO kinds VALUES (1, 2, 'é "q", ' || chr(10) || 'l', 0.1, 1.25, true, '2026-01-02',
           '2026-01-02 03:04:05.5+02', '{"k": 1}', 'v'), (2, 1, '', NULL, NULL, false, NULL, NULL, NULL, NULL),
           (9, 1, NULL, 'NaN', 3, NULL, NULL, NULL, '[]', '\\N')""",
    )
    source = open_source(server.address("kinds"), DataSpec(columns=("s", "x", "n", "y", "d", "t", "j", "v")))
    assert isinstance(source, ColumnarSource)

    first, second, third = source.read(np.array([0, 1, 2]))

    assert first == {"s": "", "x": None, "n": None, "y": False, "d": None, "t": None, "j": None, "v": None}
    assert second["s"] is None and np.isnan(second["x"]) and second["v"] == "\\N"
    assert third["s"] == 'é "q", \nl' and third["y"] is True and third["n"] == 1.25 and third["j"] == '{"k": 1}'
    assert third["x"] == pytest.approx(0.1) and third["d"] == datetime.date(2026, 1, 2)
    assert third["t"] == datetime.datetime(2026, 1, 2, 1, 4, 5, 500000, tzinfo=datetime.UTC)
    assert source.read_columns(np.array([2]), {"n": pa.int32(), "x": pa.float64()} | {"n": pa.float32()}).num_rows == 1
    with pytest.raises(DataError, match=r"row 2 in the order of b, a, column 's': expected float, got 'é"):
        source.read_columns(np.array([2]), {"s": pa.float32()})
    source.close()


def test_readers_with_the_same_index_agree_while_rows_are_added(
    server: PostgresServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.execute("CREATE TABLE growing (id text PRIMARY KEY)", "INSERT INTO growing VALUES ('a'), ('b')")
    open_source(server.address("growing"), DataSpec(), tmp_path).close()
    server.execute("INSERT INTO growing VALUES ('c')")

    later = open_source(server.address("growing"), DataSpec(), tmp_path)

    assert ids(later, [1, 0]) == ["b", "a"] and len(later) == 2
    assert "rows were added since this job numbered it; it trains the first 2" in caplog.text
    server.execute("DELETE FROM growing WHERE id = 'a'")
    later.cache.clear()  # type: ignore[attr-defined]
    with pytest.raises(DataError, match=r"expected 2 rows from .*, got 1; the table changed"):
        later.read(np.array([0]))
    later.close()


def test_a_named_key_must_be_unique_and_never_null(server: PostgresServer) -> None:
    server.execute(
        'CREATE TABLE keyed ("Id x" int NOT NULL UNIQUE, maybe int UNIQUE, id int)',
        "INSERT INTO keyed VALUES (2, NULL, 20), (1, 5, 10)",
    )
    source = open_source(server.address("keyed", "&key=Id%20x"), DataSpec())
    assert ids(source, [0, 1]) == [10, 20]
    source.close()

    with pytest.raises(DataError, match=r"no primary key.*unique and never null are: key=Id x.*ALTER TABLE"):
        open_source(server.address("keyed"), DataSpec())
    with pytest.raises(DataError, match=r"key=maybe has no unique index, or may be null"):
        open_source(server.address("keyed", "&key=maybe"), DataSpec())


def test_an_invalid_table_or_password_is_reported_at_once(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.execute("CREATE TABLE none (id int PRIMARY KEY, wide int)")
    with pytest.raises(DataError, match="no such table"):
        open_source(server.address("nowhere"), DataSpec())
    with pytest.raises(DataError, match="the table has no rows"):
        open_source(server.address("none"), DataSpec())
    with pytest.raises(DataError, match=r"no column 'wade' among 'id', 'wide'; did you mean 'wide'\?"):
        open_source(server.address("none"), DataSpec(columns=("wade",)))
    with pytest.raises(DataError, match=r"data\.format is csv, which is for files"):
        open_source(server.address("none"), DataSpec(format="csv"))
    monkeypatch.setenv("PGPASSWORD", "a-wrong-one")
    with pytest.raises(DataError, match=r"refuses this user .* set PGPASSWORD") as caught:
        open_source(server.address("none"), DataSpec())
    assert "a-wrong-one" not in str(caught.value)


def test_a_password_can_be_read_from_a_file(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.execute("CREATE TABLE one (id int PRIMARY KEY)", "INSERT INTO one VALUES (1)")
    (tmp_path / "secret").write_text(PASSWORD + "\n")
    monkeypatch.delenv("PGPASSWORD")
    monkeypatch.setenv("PGPASSWORD_FILE", str(tmp_path / "secret"))

    source = open_source(server.address("one"), DataSpec())

    assert ids(source, [0]) == [1]
    source.close()


def test_reading_continues_when_a_server_returns_and_fails_if_it_does_not(server: PostgresServer) -> None:
    server.execute("CREATE TABLE away (id int PRIMARY KEY)", "INSERT INTO away SELECT generate_series(0, 1999)")
    source = open_source(server.address("away"), DataSpec(retry_s=30))
    hasty = open_source(server.address("away"), DataSpec(retry_s=0.3))
    assert ids(source, [5]) == [5]

    server.kill()
    assert ids(source, [6]) == [6]  # what was read is kept
    with pytest.raises(DataUnavailable, match=r"did not answer for 0.3 s: .*resume from the newest checkpoint"):
        hasty.read(np.array([5]))
    back = threading.Thread(target=server.start)
    back.start()
    assert ids(source, [1999]) == [1999]
    back.join()
    assert ids(hasty, [5]) == [5]
    source.close()
    hasty.close()
