"""What a ps answers, and who must know of it first."""

from __future__ import annotations

from typing import NamedTuple

from elasticdl.ps.wire import Message
from elasticdl.spec import PsId


class Mirror(NamedTuple):
    """The ps that holds a copy of all our slots."""

    target: PsId
    address: str


class Answer(NamedTuple):
    """With a mirror: `reply` may go out once that one has answered `forward`; then the holdings are told: `done`."""

    reply: Message
    mirror: Mirror | None = None
    forward: Message | None = None
