"""Which pushes a ps accepts: how stale its values may be, and how many pushes make one update."""

from __future__ import annotations

from typing import NamedTuple

STALENESS_BUCKETS = 24


class PushPolicy(NamedTuple):
    """The rules of the section `ps` of a job description."""

    max_staleness: int = 0  # a push computed with values older than this many updates is refused; 0: never
    scale_lr_by_staleness: bool = False  # divide the learning rate of a push by its staleness
    grads_to_wait: int = 1  # pushes that make one update

    def is_stale(self, staleness: int) -> bool:
        """Whether a push is refused. If several pushes make an update, each must have seen the one before."""
        if self.grads_to_wait > 1:
            return staleness > 0
        return 0 < self.max_staleness < staleness

    def scale_learning_rate(self, rate: float, staleness: int) -> float:
        return rate / max(1, staleness) if self.scale_lr_by_staleness else rate


ACCEPT_ALL = PushPolicy()  # every push, at once


def staleness(clock: int, seen: int) -> int:
    """The number of updates since the values were pulled; 0 if it is unknown, or `seen` is the clock of another ps."""
    return max(0, clock - seen) if seen else 0


def staleness_bucket(staleness: int) -> int:
    """The bucket of the histogram: 0, 1, 2-3, 4-7, 8-15 …"""
    return min(staleness.bit_length(), STALENESS_BUCKETS - 1)
