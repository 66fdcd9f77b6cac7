"""Which batches were applied: each push counts once, however often and in whatever order it comes. Pure.

Batches are counted for each sender and *origin*, the ps a push was made for. What an origin has counted goes with its
slots, so whoever holds them later can tell whether a push that was made for it is in the rows already.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Counted:
    """Batches of one sender, numbered from 1. All up to `through` are settled, and those in `beyond`."""

    through: int = 0
    beyond: set[int] = field(default_factory=set)

    def has(self, batch: int) -> bool:
        return batch <= self.through or batch in self.beyond

    def count(self, batch: int) -> bool:
        """Take note of a batch. False: it was counted before."""
        if self.has(batch):
            return False
        self.beyond.add(batch)
        self._close_up()
        return True

    def settle(self, batch: int) -> None:
        """None below `batch` will come again."""
        if batch - 1 > self.through:
            self.through = batch - 1
            self.beyond = {one for one in self.beyond if one > self.through}
            self._close_up()

    def merge(self, other: Counted) -> None:
        self.settle(other.through + 1)
        self.beyond |= {one for one in other.beyond if one > self.through}
        self._close_up()

    def _close_up(self) -> None:
        while self.through + 1 in self.beyond:
            self.through += 1
            self.beyond.remove(self.through)


Key = tuple[int, int]  # origin, sender


def dump(counted: dict[Key, Counted]) -> list[list[int]]:
    """As plain values: origin, sender, through, and those beyond."""
    return [[*key, one.through, *sorted(one.beyond)] for key, one in sorted(counted.items())]


def load(document: list[list[int]]) -> dict[Key, Counted]:
    """Raises TypeError or ValueError where it is something else."""
    return {
        (int(origin), int(sender)): Counted(int(through), set(map(int, beyond)))
        for origin, sender, through, *beyond in document
    }
