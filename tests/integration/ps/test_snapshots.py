"""Snapshots over real sockets: restored rows are those of the snapshot, for any events before and after."""

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
from tests.integration.ps.fleet import LocalFleet, Rows, assert_equal_rows, expected, restore_rows, rows_of
from tests.properties import examples

IDS = st.lists(st.integers(-60, 60), min_size=1, max_size=20)
SLOTS = st.lists(st.integers(0, 1023), min_size=1, max_size=600, unique=True)


class RowsAtSnapshot(NamedTuple):
    """Pushes and rows at the moment of a snapshot."""

    pushes: Counter[int]
    rows: Rows
    number: int  # of the last push
    sent: list[int]  # its ids


class Snapshots(RuleBasedStateMachine):
    """Pushes, moves and snapshots in any order; each checkpoint that is still there keeps its rows."""

    @initialize(count=st.integers(1, 3))
    def start(self, count: int) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.fleet = LocalFleet(self.directory, count)
        self.step = 0
        self.snapshot: tuple[StartedSnapshot, RowsAtSnapshot] | None = None
        self.checkpoints: dict[Path, RowsAtSnapshot] = {}
        self.sent: list[int] = []  # last

    @rule(ids=IDS)
    def push(self, ids: list[int]) -> None:
        self.fleet.push(ids)
        self.sent = ids

    @precondition(lambda self: len(self.fleet.holdings) < 4)
    @rule()
    def add(self) -> None:
        self.fleet.add()

    @rule(slots=SLOTS, target_index=st.integers(0, 3))
    def move(self, slots: list[int], target_index: int) -> None:
        names = list(self.fleet.holdings)
        self.fleet.move(slots, names[target_index % len(names)])

    @rule()
    def begin(self) -> None:
        """Begins a snapshot that another may replace before it is written."""
        self.step += 1
        rows = rows_of(*self.fleet.holdings.values())
        at_snapshot = RowsAtSnapshot(Counter(self.fleet.pushes), rows, self.fleet.number, self.sent)
        self.snapshot = (self.fleet.begin(self.step), at_snapshot)

    @precondition(lambda self: self.snapshot is not None)
    @rule()
    def finish(self) -> None:
        assert self.snapshot is not None
        snapshot, at_snapshot = self.snapshot
        self.checkpoints[self.fleet.finish(snapshot)] = at_snapshot
        self.snapshot = None

    @rule()
    def write_checkpoint(self) -> None:
        self.begin()
        self.finish()

    @precondition(lambda self: len(self.checkpoints) > 1)
    @rule()
    def prune(self) -> None:
        oldest = min(path for path in self.checkpoints if path != self.fleet.newest)  # that one is built upon
        shutil.rmtree(oldest)
        del self.checkpoints[oldest]

    @precondition(lambda self: self.checkpoints)
    @rule(data=st.data(), count=st.integers(1, 4))
    def restore(self, data: st.DataObject, count: int) -> None:
        path = data.draw(st.sampled_from(sorted(self.checkpoints)))
        pushes, rows, number, sent = self.checkpoints[path]

        states, slot_map = restore_rows(path, count)

        assert rows_of(*states.values()) == rows
        assert_equal_rows(rows, expected(pushes))
        if number:
            self.fleet.send(number, sent, states, slot_map)
            assert rows_of(*states.values()) == rows, "this push is in the rows already"

    @precondition(lambda self: self.checkpoints)
    @rule(data=st.data(), count=st.integers(1, 3))
    def restart(self, data: st.DataObject, count: int) -> None:
        path = data.draw(st.sampled_from(sorted(self.checkpoints)))
        pushes, _, number, self.sent = self.checkpoints[path]
        self.fleet.restart(path, count, pushes, number)
        self.snapshot = None

    @invariant()
    def each_row_is_with_one_ps(self) -> None:
        if hasattr(self, "fleet"):
            assert_equal_rows(rows_of(*self.fleet.holdings.values()), expected(self.fleet.pushes))

    def teardown(self) -> None:
        if hasattr(self, "fleet"):
            try:
                for path, at_snapshot in self.checkpoints.items():
                    assert rows_of(*restore_rows(path, 2)[0].values()) == at_snapshot.rows
            finally:
                self.fleet.close()
                shutil.rmtree(self.directory)


Snapshots.TestCase.settings = settings(
    max_examples=examples(25),
    stateful_step_count=20,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # to shrink with real sockets takes minutes
)
TestRestoredRowsAreThoseOfTheSnapshot = pytest.mark.timeout(240)(Snapshots.TestCase)
