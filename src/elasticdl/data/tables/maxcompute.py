"""Reads rows of a MaxCompute table, or of one partition, through a download session of its tunnel."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from elasticdl.data.tables.table_source import select_columns
from elasticdl.data.tables.table_uri import MaxComputeTable, read_secret
from elasticdl.errors import DatabaseUnavailable, DataError
from elasticdl.extras import install_command


class MaxComputeRows:
    """The rows of a table, opened by `open_maxcompute`. `new_session` opens a session, again if one expired."""

    def __init__(self, name: str, new_session: Callable[[], Any], requested: tuple[str, ...] = ()) -> None:
        self.name = name
        self._new_session = new_session
        self._lock = threading.Lock()
        session = self._session = _call_odps(name, new_session)
        self._rows = int(session.count)
        self.columns = select_columns(name, requested, [column.name for column in session.schema.simple_columns])

    def __len__(self) -> int:
        return self._rows

    def fetch(self, start: int, stop: int) -> Any:
        with self._lock:
            session = self._session
        if session is None:
            session = _call_odps(self.name, self._new_session)
            if int(session.count) != self._rows:
                raise DataError(
                    f"{self.name}: had {self._rows} rows and now has {session.count}; the table changed while the job "
                    f"was using it: train on a partition that is not written to"
                )
            with self._lock:
                self._session = session

        def read() -> Any:
            with session.open_arrow_reader(start, stop - start, columns=list(self.columns)) as reader:
                return reader.read()

        try:
            return _call_odps(self.name, read).select(list(self.columns))
        except DatabaseUnavailable:
            with self._lock:
                self._session = None  # perhaps it expired
            raise

    def locate(self, index: int) -> str:
        return f"{self.name}, row {index}"

    def close(self) -> None:
        """Sessions expire by themselves."""


def open_maxcompute(
    table: MaxComputeTable, columns: tuple[str, ...], environ: Mapping[str, str] = os.environ
) -> MaxComputeRows:
    """Opens a table. Raises DataError if it is missing or forbidden, and DatabaseUnavailable without an answer."""
    try:
        from odps import ODPS
        from odps.tunnel import TableTunnel
    except ImportError as exc:
        raise DataError(f"{table}: reading it needs PyODPS: {install_command('maxcompute')}") from exc
    user, key = read_secret(environ, "ODPS_ACCESS_ID"), read_secret(environ, "ODPS_ACCESS_KEY")
    endpoint = environ.get("ODPS_ENDPOINT")
    missing = [
        name
        for name, value in {"ODPS_ACCESS_ID": user, "ODPS_ACCESS_KEY": key, "ODPS_ENDPOINT": endpoint}.items()
        if not value
    ]
    if missing:
        raise DataError(
            f"{table}: {' and '.join(missing)} must be set in the environment (the first two also as files, "
            f"ODPS_ACCESS_KEY_FILE=/path), on Kubernetes by a Secret with --env_secrets"
        )
    tunnel = TableTunnel(ODPS(user, key, project=table.project, endpoint=endpoint))

    def new_session() -> Any:
        return tunnel.create_download_session(table.table, partition_spec=table.partition or None)

    return MaxComputeRows(str(table), new_session, columns)


def _call_odps(name: str, request: Callable[[], Any]) -> Any:
    from odps import errors

    permanent_errors = (
        errors.NoSuchObject, errors.NoPermission, errors.Unauthorized, errors.SignatureNotMatch,
        errors.InvalidArgument, errors.InvalidParameter, errors.AuthorizationRequired,
    )  # fmt: skip
    try:
        return request()
    except permanent_errors as exc:
        raise DataError(f"{name}: {exc}; check the address, ODPS_ACCESS_ID and its rights") from exc
    except (errors.BaseODPSError, OSError) as exc:
        raise DatabaseUnavailable(f"{type(exc).__name__}: {exc}") from exc
