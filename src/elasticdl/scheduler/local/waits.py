"""When there will be room for those who wait, by the seconds that running jobs have to go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Running:
    name: str
    devices: int
    remaining_s: float | None  # None: nobody knows


@dataclass(frozen=True, slots=True)
class Waiting:
    name: str
    devices: int  # that it needs to begin, or to grow


def expected(free: int, running: Sequence[Running], waiting: Sequence[Waiting]) -> dict[str, float | None]:
    """Seconds until each has its devices, if those ahead of it take theirs and keep them. None: nobody can say.

    One that runs and waits for more does not get it from its own end. An estimate: speeds change with the number of
    workers, and jobs ahead may end, too.
    """
    ends = sorted((one.remaining_s, one.devices, one.name) for one in running if one.remaining_s is not None)
    found: dict[str, float | None] = {}
    at = 0.0
    for want in waiting:
        is_over = False
        while free < want.devices and ends and not is_over:
            at, devices, name = ends.pop(0)
            free += devices
            is_over = name == want.name
        has_room = free >= want.devices and not is_over
        found[want.name] = at if has_room else None
        free -= want.devices if has_room else 0
    return found
