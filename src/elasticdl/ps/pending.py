"""Requests that a worker has sent and that are not answered yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.wire import Floats, Ids, Message
from elasticdl.spec import PsId

Place = slice | NDArray[np.int64]


class Share(NamedTuple):
    """What one ps gets of one plan, and where in the plan its rows belong."""

    table: str
    ids: Ids
    rows: Floats
    plan: int
    place: Place


class Request(NamedTuple):
    ps: PsId
    message: Message
    shares: tuple[Share, ...]


class Pending:
    """Requests without an answer; `rows` is filled by the replies to a pull, plan by plan."""

    __slots__ = ("clocks", "is_stale", "open", "rows")

    def __init__(self, rows: Sequence[Floats | None] = ()) -> None:
        self.open = 0  # requests
        self.rows = list(rows)
        self.clocks: dict[PsId, int] = {}
        self.is_stale = False
