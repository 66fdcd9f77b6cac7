"""A copy of all slots of a ps at another one: made while workers go on, then kept whole push by push (forwards.py)."""

from __future__ import annotations

import time

from elasticdl.ps.answer import Mirror
from elasticdl.ps.holdings import Holdings
from elasticdl.ps.line import Lines
from elasticdl.ps.moving import Moved, Transfer, forgetting
from elasticdl.ps.slots import SLOTS, number_of
from elasticdl.spec import PsId


def mirror(holdings: Holdings, target: PsId, lines: Lines) -> Moved:
    """Let `target` hold a copy of all our slots; from the moment this returns every push waits for it.

    A copy that it holds of us already is made anew.
    """
    transfer = Transfer(holdings, target, lines, number_of(holdings.name) + 1)
    transfer.declare()
    transfer.ask(forgetting(range(SLOTS)))
    transfer.catch_up(holdings.held)
    with holdings.closed():
        started = time.monotonic()
        transfer.declare()  # tables without a row are copied, too
        transfer.finish(holdings.held)
        holdings.set_mirror(Mirror(target, lines.addresses[target]))
        pause_s = time.monotonic() - started
    return Moved(transfer.rows, pause_s)


def unmirror(holdings: Holdings) -> None:
    """The copy is gone, or no longer wanted: nobody waits for it any more."""
    holdings.set_mirror(None)
