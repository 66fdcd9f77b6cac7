"""Reads whole tables over the network, for workers that do not see the files of the ps."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from elasticdl.ps import _native
from elasticdl.ps.fleet import FleetView
from elasticdl.ps.wire.connections import PsConnections
from elasticdl.ps.wire.keys import CurveKeys
from elasticdl.ps.wire.messages import NO_ROWS, Floats, Ids, MessageKind, PsMessage, TablePart
from elasticdl.spec import PsId


class TableReader:
    """While nobody pushes. Speaks to the ps of one fleet, a stripe of a table at a time."""

    def __init__(self, fleet: FleetView, token: str, timeout_s: float, keys: CurveKeys | None) -> None:
        self._connections = PsConnections(fleet.addresses, token, timeout_s, keys)
        self._owners = sorted(set(fleet.slot_map.owner))
        statuses = {
            name: json.loads(self._connections.request(name, PsMessage(MessageKind.STATUS, 0)).text)
            for name in self._owners
        }
        self._tables = {name: list(status["tables"]) for name, status in statuses.items()}  # in the order of DECLARE
        self._columns = {
            t: table_status["columns"] for status in statuses.values() for t, table_status in status["tables"].items()
        }

    def close(self) -> None:
        self._connections.close()

    def read_table(self, table: str) -> tuple[Ids, Floats]:
        """Every id and its values, ids in ascending order."""
        pieces = [piece for name in self._owners for piece in self._pieces(name, table)]
        if not pieces:
            return np.empty(0, np.int64), np.empty((0, self._columns[table]), np.float32)
        ids = np.concatenate([ids for ids, _ in pieces])
        order = np.argsort(ids)
        return ids[order], np.concatenate([values for _, values in pieces])[order]

    def _pieces(self, name: PsId, table: str) -> Iterator[tuple[Ids, Floats]]:
        if table not in self._tables[name]:
            return
        number = self._tables[name].index(table)
        for stripe in range(_native.STRIPES):
            requested = TablePart(number, np.array([stripe], np.int64), NO_ROWS)
            for part in self._connections.request(
                name, PsMessage(MessageKind.READ_STRIPE, 0, parts=(requested,))
            ).parts:
                yield part.ids, part.rows
