"""Cuts over real sockets: what comes back is what was there at the cut, whatever happened before and after."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from elasticdl.ps.snapshots.coordinator import StartedSnapshot
from tests.integration.ps.fleet import Rows, Ship, agree, expected, restored, rows_of
from tests.properties import examples

IDS = st.lists(st.integers(-60, 60), min_size=1, max_size=20)
SLOTS = st.lists(st.integers(0, 1023), min_size=1, max_size=600, unique=True)


class Kept(NamedTuple):
    """How it was at a cut."""

    pushes: Counter[int]
    rows: Rows
    number: int  # of the last push
    sent: list[int]  # its ids


class Cuts(RuleBasedStateMachine):
    """Pushes, moves and cuts in any order; each checkpoint that is still there is as it was."""

    @initialize(count=st.integers(1, 3))
    def start(self, count: int) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.ship = Ship(self.directory, count)
        self.step = 0
        self.begun: tuple[StartedSnapshot, Kept] | None = None
        self.kept: dict[Path, Kept] = {}
        self.sent: list[int] = []  # last

    @rule(ids=IDS)
    def push(self, ids: list[int]) -> None:
        self.ship.push(ids)
        self.sent = ids

    @precondition(lambda self: len(self.ship.holdings) < 4)
    @rule()
    def add(self) -> None:
        self.ship.add()

    @rule(slots=SLOTS, place=st.integers(0, 3))
    def move(self, slots: list[int], place: int) -> None:
        names = list(self.ship.holdings)
        self.ship.move(slots, names[place % len(names)])

    @rule()
    def begin(self) -> None:
        """A cut that another may replace before it is written."""
        self.step += 1
        rows = rows_of(*self.ship.holdings.values())
        kept = Kept(Counter(self.ship.pushes), rows, self.ship.number, self.sent)
        self.begun = (self.ship.begin(self.step), kept)

    @precondition(lambda self: self.begun is not None)
    @rule()
    def finish(self) -> None:
        assert self.begun is not None
        begun, kept = self.begun
        self.kept[self.ship.finish(begun)] = kept
        self.begun = None

    @rule()
    def cut(self) -> None:
        self.begin()
        self.finish()

    @precondition(lambda self: len(self.kept) > 1)
    @rule()
    def prune(self) -> None:
        oldest = min(path for path in self.kept if path != self.ship.newest)  # that one is built upon
        shutil.rmtree(oldest)
        del self.kept[oldest]

    @precondition(lambda self: self.kept)
    @rule(data=st.data(), count=st.integers(1, 4))
    def restore(self, data: st.DataObject, count: int) -> None:
        path = data.draw(st.sampled_from(sorted(self.kept)))
        pushes, rows, number, sent = self.kept[path]

        found, slot_map = restored(path, count)

        assert rows_of(*found.values()) == rows
        agree(rows, expected(pushes))
        if number:
            self.ship.send(number, sent, found, slot_map)
            assert rows_of(*found.values()) == rows, "this push is in the rows already"

    @precondition(lambda self: self.kept)
    @rule(data=st.data(), count=st.integers(1, 3))
    def restart(self, data: st.DataObject, count: int) -> None:
        path = data.draw(st.sampled_from(sorted(self.kept)))
        pushes, _, number, self.sent = self.kept[path]
        self.ship.restart(path, count, pushes, number)
        self.begun = None

    @invariant()
    def each_row_is_with_one_ps(self) -> None:
        if hasattr(self, "ship"):
            agree(rows_of(*self.ship.holdings.values()), expected(self.ship.pushes))

    def teardown(self) -> None:
        if hasattr(self, "ship"):
            try:
                for path, kept in self.kept.items():
                    assert rows_of(*restored(path, 2)[0].values()) == kept.rows
            finally:
                self.ship.close()
                shutil.rmtree(self.directory)


Cuts.TestCase.settings = settings(
    max_examples=examples(25),
    stateful_step_count=20,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # to shrink with real sockets takes minutes
)
TestWhatComesBackIsWhatWasThereAtTheCut = pytest.mark.timeout(240)(Cuts.TestCase)
