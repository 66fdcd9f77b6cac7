"""MaxCompute through a stand-in of its tunnel: the service itself is not reachable from tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from elasticdl.data.tables.maxcompute import MaxComputeRows, open_maxcompute
from elasticdl.data.tables.table_source import TableSource, open_table_source
from elasticdl.data.tables.table_uri import MaxComputeTable
from elasticdl.errors import DataError

odps = pytest.importorskip("odps")
ROWS = 2500


class Tunnel:
    """Sessions as `TableTunnel.create_download_session` gives them, each good for so many readers."""

    def __init__(self, rows: int = ROWS, readers: int = 1000) -> None:
        self.rows = rows
        self.readers = readers
        self.sessions = 0
        self.read: list[tuple[int, int]] = []

    def session(self) -> Any:
        self.sessions += 1
        left = [self.readers]
        names = [SimpleNamespace(name=name) for name in ("id", "x")]

        def open_arrow_reader(start: int, count: int, columns: list[str]) -> Reader:
            left[0] -= 1
            if left[0] < 0:
                raise odps.errors.InternalServerError("the session has expired")
            self.read.append((start, count))
            ids = np.arange(start, start + count)
            return Reader(pa.table({"id": ids, "x": ids / 2}).select(columns))

        return SimpleNamespace(
            count=self.rows, schema=SimpleNamespace(simple_columns=names), open_arrow_reader=open_arrow_reader
        )


class Reader:
    def __init__(self, table: Any) -> None:
        self._table = table

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""

    def read(self) -> Any:
        return self._table


def source_of(tunnel: Tunnel, columns: tuple[str, ...] = ()) -> TableSource:
    return open_table_source(
        lambda _: MaxComputeRows("maxcompute://p/t", tunnel.session, columns), "maxcompute://p/t", 100, 5
    )


def test_ranges_of_rows_are_downloaded_once_each() -> None:
    tunnel = Tunnel()
    source = source_of(tunnel)

    assert source.read(np.array([2499, 0, 1])) == [{"id": 2499, "x": 1249.5}, {"id": 0, "x": 0.0}, {"id": 1, "x": 0.5}]
    assert source.read(np.array([1023])) == [{"id": 1023, "x": 511.5}]
    assert tunnel.read == [(0, 1024), (2048, 452)] and tunnel.sessions == 1


def test_an_expired_session_is_opened_again() -> None:
    tunnel = Tunnel(readers=1)
    source = source_of(tunnel, ("id",))

    assert [record["id"] for record in source.read(np.array([0, 1024, 2048]))] == [0, 1024, 2048]
    assert tunnel.sessions == 3


def test_a_table_that_has_grown_is_reported() -> None:
    tunnel = Tunnel(readers=1)
    source = source_of(tunnel)
    source.read(np.array([0]))
    tunnel.rows += 1

    with pytest.raises(DataError, match="had 2500 rows and now has 2501"):
        source.read(np.array([2000]))


def test_a_refused_request_is_not_repeated() -> None:
    def refused() -> Any:
        raise odps.errors.NoSuchTable("no table t")

    with pytest.raises(DataError, match="no table t"):
        open_table_source(lambda _: MaxComputeRows("maxcompute://p/t", refused), "maxcompute://p/t", 100, 5)
    with pytest.raises(DataError, match="no column 'y' among 'id', 'x'"):
        source_of(Tunnel(), ("y",))


def test_missing_credentials_are_named() -> None:
    with pytest.raises(DataError, match=r"ODPS_ACCESS_KEY and ODPS_ENDPOINT must be set .*--env_secrets") as caught:
        open_maxcompute(MaxComputeTable("p", "t"), (), {"ODPS_ACCESS_ID": "an-id-of-mine"})
    assert "an-id-of-mine" not in str(caught.value)
