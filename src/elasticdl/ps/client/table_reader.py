"""Reads whole tables over the network, for workers that cannot read the files of the ps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Self

import numpy as np

from elasticdl.ps import _native
from elasticdl.ps.fleet import FleetView
from elasticdl.ps.wire.connections import PsConnections
from elasticdl.ps.wire.keys import CurveKeys
from elasticdl.ps.wire.messages import NO_ROWS, Floats, Ids, MessageKind, PsMessage, TablePart
from elasticdl.spec import PsId


class TableReader:
    """Reads tables stripe by stripe from the ps of one fleet, inside of `with`. No worker may push meanwhile."""

    def __init__(self, fleet: FleetView, token: str, timeout_s: float, keys: CurveKeys | None) -> None:
        self._connections = PsConnections(fleet.addresses, token, timeout_s, keys)
        self._owners = sorted(set(fleet.slot_map.owner))
        self._tables: dict[PsId, list[str]] = {}  # of each ps, in the order of DECLARE
        self._columns: dict[str, int] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._connections)
            for name in self._owners:
                status = json.loads(self._connections.request(name, PsMessage(MessageKind.STATUS, 0)).text)
                self._tables[name] = list(status["tables"])
                self._columns |= {table: size["columns"] for table, size in status["tables"].items()}
            stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._connections.close()

    def read_table(self, table: str) -> tuple[Ids, Floats]:
        """Returns all ids in ascending order, and their values."""
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
