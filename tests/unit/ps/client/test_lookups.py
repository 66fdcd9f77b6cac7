from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from elasticdl.errors import ModelError
from tests import native

native.require()

from elasticdl.ps.client.local_tables import LocalPull, LocalTables  # noqa: E402
from elasticdl.ps.client.lookup_plan import LookupPlan  # noqa: E402
from elasticdl.ps.client.lookups import EmbeddingLookups, LookupResult  # noqa: E402
from elasticdl.ps.tables.initializer import Initializer  # noqa: E402
from elasticdl.ps.tables.table import TableSpec  # noqa: E402
from elasticdl.ps.wire.messages import Floats  # noqa: E402

ONES = Initializer(kind="constant", value=1.0)


class Slow(LocalTables):
    """Answers a push when it is asked about it."""

    def __init__(self) -> None:
        super().__init__(seed=0)
        self.declare([TableSpec(name=name, columns=2, initializer=ONES) for name in ("users", "items")])
        self.waiting: list[Any] = []
        self.pulls: list[list[str]] = []
        self.pushes: list[tuple[int, int]] = []

    def begin_pull(self, plans: Mapping[str, LookupPlan], *, create: bool = True) -> LocalPull:
        self.pulls.append(sorted(plans))
        return super().begin_pull(plans, create=create)

    def begin_push(self, *arguments: Any, **options: Any) -> Any:
        pending = (arguments, options)
        self.waiting.append(pending)
        self.pushes.append((options["sender"], options["number"]))
        return pending

    def finish_push(self, pending: Any) -> bool:
        self.waiting.remove(pending)
        super().begin_push(*pending[0], **pending[1])
        return True


def rows(looked_up: LookupResult) -> Floats:
    return looked_up.rows[looked_up.plan.inverse]


def give_ones(lookups: EmbeddingLookups, table: str, ids: list[int]) -> None:
    looked_up = lookups.lookup(table, np.array(ids))
    lookups.add_gradients(table, looked_up, looked_up.plan.sum_gradients(np.ones((len(ids), 2), np.float32)))


def push(lookups: EmbeddingLookups, number: int) -> None:
    lookups.push_gradients(sender=3, number=number, rate=1.0, step=number)


def values(tables: LocalTables, table: str) -> dict[int, float]:
    ids, table_rows = tables.read_table(table)
    return dict(zip(ids.tolist(), table_rows[:, 0].tolist(), strict=True))


def test_a_batch_has_its_rows_in_the_order_it_asked_for_them() -> None:
    lookups = EmbeddingLookups(Slow(), depth=0)
    lookups.begin_batch()
    give_ones(lookups, "users", [7])
    push(lookups, 1)
    lookups.begin_batch()

    looked_up = lookups.lookup("users", np.array([[7, 5], [5, 7]], np.int32))

    assert rows(looked_up)[:, 0].tolist() == [0.0, 1.0, 1.0, 0.0]
    assert len(looked_up.rows) == 2, "each id once"


def test_two_layers_that_share_a_table_update_a_row_once_with_the_sum() -> None:
    tables = Slow()
    lookups = EmbeddingLookups(tables, depth=0)
    lookups.begin_batch()

    give_ones(lookups, "users", [1, 2, 2])
    give_ones(lookups, "users", [2, 3])
    push(lookups, 1)

    assert values(tables, "users") == {1: 0.0, 2: -2.0, 3: 0.0}
    assert tables.pushes == [(3, 1)]


@pytest.mark.parametrize("ahead", [False, True])
def test_what_is_pulled_ahead_is_what_is_found(ahead: bool) -> None:
    tables = Slow()
    lookups = EmbeddingLookups(tables, depth=1)
    first, second = np.array([1, 2, 2]), np.array([2, 3])
    if ahead:
        lookups.prefetch({"users": [first, second], "items": np.array([9])})
        assert tables.pulls == [["items", "users"]], "one request for all tables"
    lookups.begin_batch()

    for ids in (first, second):
        looked_up = lookups.lookup("users", ids)
        lookups.add_gradients("users", looked_up, looked_up.plan.sum_gradients(np.ones((len(ids), 2), np.float32)))
    lookups.lookup("items", np.array([9]))
    push(lookups, 1)
    lookups.wait_for_pushes()

    assert lookups.prefetched == (3 if ahead else 0)
    assert len(tables.pulls) == (1 if ahead else 3)
    assert values(tables, "users") == {1: 0.0, 2: -2.0, 3: 0.0}


def test_ids_that_were_not_foreseen_are_pulled_when_they_are_asked_for() -> None:
    lookups = EmbeddingLookups(Slow(), depth=1)
    lookups.prefetch({"users": np.array([1, 2])})
    lookups.begin_batch()

    assert rows(lookups.lookup("users", np.array([4]))).tolist() == [[1.0, 1.0]]
    assert lookups.prefetched == 0


def test_a_second_pass_over_a_batch_finds_the_same_rows() -> None:
    tables = Slow()
    lookups = EmbeddingLookups(tables, depth=0)
    lookups.begin_batch()

    once, again = (lookups.lookup("users", np.array([1, 2])) for _ in range(2))

    assert once is again and len(tables.pulls) == 1


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_no_more_pushes_are_under_way_than_the_depth_allows(depth: int) -> None:
    tables = Slow()
    lookups = EmbeddingLookups(tables, depth)
    for number in range(1, 7):
        lookups.begin_batch()
        give_ones(lookups, "users", [number])
        push(lookups, number)
        assert len(tables.waiting) == min(depth, number)

    lookups.wait_for_pushes()

    assert tables.waiting == [] and len(values(tables, "users")) == 6


def test_no_more_is_pulled_ahead_than_the_depth_allows() -> None:
    tables = Slow()
    lookups = EmbeddingLookups(tables, depth=2)

    for number in range(5):
        lookups.prefetch({"users": np.array([number])})

    assert len(tables.pulls) == 2


def test_pushes_that_are_held_go_out_when_they_are_released_and_never_when_they_are_abandoned() -> None:
    tables = Slow()
    lookups = EmbeddingLookups(tables, depth=0)
    for number, end in ((1, lookups.release_pushes), (2, lookups.discard_unsent)):
        lookups.hold_pushes()
        lookups.begin_batch()
        give_ones(lookups, "users", [number])
        push(lookups, number)
        end()
    lookups.release_pushes()

    assert tables.pushes == [(3, 1)]


def test_a_batch_that_gave_nothing_pushes_nothing() -> None:
    tables = Slow()
    lookups = EmbeddingLookups(tables, depth=0)
    lookups.begin_batch()

    push(lookups, 1)

    assert tables.pushes == []


def test_no_ids_have_no_rows() -> None:
    looked_up = EmbeddingLookups(Slow(), depth=0).lookup("users", np.empty(0, np.int64))

    assert looked_up.rows.shape == (0, 2)


def test_what_is_no_id_is_refused_by_the_name_of_the_table() -> None:
    with pytest.raises(ModelError, match=r"table users: expected integers as ids. Received: float64 of shape \(2,\)"):
        EmbeddingLookups(Slow(), depth=0).lookup("users", np.array([1.0, 2.0]))


def test_the_newest_rows_are_those_after_all_pushes_though_others_were_pulled_ahead() -> None:
    client = Slow()
    lookups = EmbeddingLookups(client, depth=2)
    lookups.begin_batch()
    lookups.prefetch({"users": np.array([7])})
    give_ones(lookups, "users", [7])
    push(lookups, 1)
    lookups.begin_batch()
    lookups.wait_for_pushes()

    assert rows(lookups.lookup("users", np.array([7])))[0, 0] == 1.0  # as it was pulled ahead
    assert rows(lookups.lookup_latest("users", np.array([7])))[0, 0] < 1.0
