"""A table against plain dictionaries: rows come, change, move and go."""

from __future__ import annotations

import threading
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.ps import _native
from elasticdl.ps.slots import SLOTS
from elasticdl.ps.tables.initializer import Initializer
from elasticdl.ps.tables.optimizer import Optimizer
from elasticdl.ps.tables.table import TableSpec, create_table
from tests.properties import examples

Ids = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float32]]

COLUMNS = 3
IDS = st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 40)


def pull(table: _native.Table, ids: Ids, *, create: bool = True, now: int = 0) -> Floats:
    out = np.empty((len(ids), table.columns), np.float32)
    table.pull(ids, out, now, create)
    return out


def everything(table: _native.Table) -> dict[int, tuple[list[float], list[float]]]:
    values_and_state: dict[int, tuple[list[float], list[float]]] = {}
    for stripe in range(_native.STRIPES):
        ids, values, state = table.collect(stripe, np.ones(SLOTS, np.uint8))
        values_and_state |= {int(i): (v.tolist(), s.tolist()) for i, v, s in zip(ids, values, state, strict=True)}
    return values_and_state


def array(ids: list[int]) -> Ids:
    return np.array(ids, np.int64)


@given(st.lists(st.tuples(st.booleans(), st.lists(IDS, max_size=60, unique=True)), max_size=12))
def test_a_table_is_a_dictionary_of_rows(calls: list[tuple[bool, list[int]]]) -> None:
    spec = TableSpec(name="t", columns=COLUMNS, initializer=Initializer(kind="constant", value=1.0))
    table, expected = create_table(spec, seed=0), dict[int, float]()
    for number, (pushes, ids) in enumerate(calls, start=1):
        if pushes:
            gradients = np.full((len(ids), COLUMNS), number, np.float32)
            assert table.push(array(ids), gradients, 0.5, number) == len(ids)
            for row_id in ids:
                expected[row_id] = expected.get(row_id, 1.0) - 0.5 * number
        else:
            for row_id in ids:
                expected.setdefault(row_id, 1.0)
            rows = pull(table, array(ids))
            assert rows.tolist() == [[expected[row_id]] * COLUMNS for row_id in ids]

    assert table.rows == len(expected)
    assert everything(table) == {row_id: ([value] * COLUMNS, []) for row_id, value in expected.items()}


@given(st.lists(IDS, min_size=1, max_size=50, unique=True), st.randoms(use_true_random=False))
def test_first_values_depend_on_seed_table_and_id_alone(ids: list[int], random: Any) -> None:
    spec = TableSpec(name="t", columns=COLUMNS)
    shuffled = random.sample(ids, len(ids))
    first, second = create_table(spec, seed=4), create_table(spec, seed=4)
    by_id = dict(zip(ids, pull(first, array(ids)).tolist(), strict=True))

    assert dict(zip(shuffled, pull(second, array(shuffled)).tolist(), strict=True)) == by_id
    assert dict(zip(ids, pull(create_table(spec, seed=4), array(ids), create=False).tolist(), strict=True)) == by_id
    renamed = create_table(spec.model_copy(update={"name": "u"}), seed=4)
    assert pull(renamed, array(ids)).tolist() != list(by_id.values())


@pytest.mark.parametrize(
    ("initializer", "mean", "deviation"),
    [
        (Initializer(kind="uniform", low=-1, high=3), 1.0, 4 / np.sqrt(12)),
        (Initializer(kind="normal", mean=2, deviation=0.5), 2.0, 0.5),
        (Initializer(kind="truncated_normal", mean=0, deviation=1), 0.0, 0.8796),
        (Initializer(kind="glorot_uniform"), 0.0, np.sqrt(2 / (1000 + 8))),
        (Initializer(kind="glorot_normal"), 0.0, np.sqrt(2 / (1000 + 8))),
    ],
    ids=lambda one: getattr(one, "kind", ""),
)
def test_first_values_have_the_distribution_asked_for(initializer: Initializer, mean: float, deviation: float) -> None:
    table = create_table(TableSpec(name="t", columns=8, rows=1000, initializer=initializer), seed=1)
    values = pull(table, np.arange(40_000))

    assert values.mean() == pytest.approx(mean, abs=0.01 * max(deviation, 1))
    assert values.std() == pytest.approx(deviation, rel=0.01)
    if initializer.kind == "truncated_normal":
        assert np.abs(values).max() <= 2.0


@settings(max_examples=examples(30))
@given(st.lists(st.lists(IDS, max_size=20, unique=True), max_size=10), st.integers(1, 4))
def test_an_id_gets_a_row_with_its_kth_sighting(batches: list[list[int]], k: int) -> None:
    spec = TableSpec(name="t", columns=COLUMNS, admit_after=k, initializer=Initializer(kind="constant", value=1.0))
    table, seen, expected = create_table(spec, seed=0), dict[int, int](), dict[int, float]()
    for ids in batches:
        for row_id in ids:
            seen[row_id] = seen.get(row_id, 0) + 1
            if seen[row_id] >= k:
                expected.setdefault(row_id, 1.0)
        assert pull(table, array(ids)).tolist() == [[expected.get(row_id, 1.0)] * COLUMNS for row_id in ids]
        applied = table.push(array(ids), np.ones((len(ids), COLUMNS), np.float32), 1.0, 1)
        assert applied == sum(row_id in expected for row_id in ids)
        for row_id in ids:
            if row_id in expected:
                expected[row_id] -= 1.0

    assert table.rows == len(expected)
    assert table.counting == len(seen) - len(expected)


def test_rows_that_nobody_used_are_dropped_and_their_places_used_again() -> None:
    table = create_table(TableSpec(name="t", columns=16), seed=0)
    pull(table, np.arange(5000), now=10)
    pull(table, np.arange(1000), now=20)

    assert table.evict(20) == 4000
    assert table.rows == 1000
    held = table.bytes
    pull(table, np.arange(10_000, 14_000), now=30)
    assert table.rows == 5000
    assert table.bytes <= held * 1.2
    assert set(everything(table)) == {*range(1000), *range(10_000, 14_000)}


@given(st.lists(IDS, max_size=80, unique=True), st.sets(st.integers(0, SLOTS - 1), max_size=SLOTS))
def test_slots_move_with_values_and_state(ids: list[int], moving: set[int]) -> None:
    spec = TableSpec(name="t", columns=COLUMNS, optimizer=Optimizer(rule="adam"))
    source, target = create_table(spec, seed=1), create_table(spec, seed=1)
    pull(source, array(ids))
    source.push(array(ids), np.ones((len(ids), COLUMNS), np.float32), 0.1, 1)
    before = everything(source)
    flags = np.zeros(SLOTS, np.uint8)
    flags[list(moving)] = 1
    for stripe in range(_native.STRIPES):
        target.load(*source.collect(stripe, flags))
    source.remove_slots(flags)

    moved_ids = {row_id for row_id, slot in zip(ids, _native.slots(array(ids)), strict=True) if int(slot) in moving}
    assert everything(target) == {row_id: before[row_id] for row_id in moved_ids}
    assert everything(source) == {row_id: row for row_id, row in before.items() if row_id not in moved_ids}


def test_only_rows_changed_since_a_turn_are_collected() -> None:
    table = create_table(TableSpec(name="t", columns=COLUMNS), seed=0)
    pull(table, np.arange(100))
    since = table.turn()
    pull(table, np.arange(120))
    table.push(np.arange(5), np.ones((5, COLUMNS), np.float32), 0.1, 1)
    changed = set[int]()
    for stripe in range(_native.STRIPES):
        changed |= set(table.collect(stripe, np.ones(SLOTS, np.uint8), since)[0].tolist())

    assert changed == {*range(5), *range(100, 120)}


def test_the_batch_that_would_go_over_the_memory_limit_is_refused_whole() -> None:
    budget = _native.Budget(800_000)
    users = create_table(TableSpec(name="users", columns=16), seed=0, budget=budget)
    items = create_table(TableSpec(name="items", columns=16), seed=0, budget=budget)
    pull(users, np.arange(1000))
    pull(items, np.arange(1000))
    with pytest.raises(
        _native.MemoryLimit, match=r"table users: rows of new ids need \d+ bytes, but .* of 800000; raise"
    ):
        pull(users, np.arange(500, 50_000))

    assert users.rows == 1000
    assert budget.used == users.bytes + items.bytes <= 800_000
    assert pull(users, np.arange(1000)).shape == (1000, 16), "rows that are there are still served"
    del items
    assert budget.used == users.bytes


@given(st.lists(st.lists(IDS, max_size=50, unique=True), max_size=8), st.integers(1, 3))
def test_every_byte_is_counted(batches: list[list[int]], admit_after: int) -> None:
    budget = _native.Budget()
    table = create_table(TableSpec(name="t", columns=2, admit_after=admit_after), 0, budget)
    for number, ids in enumerate(batches):
        pull(table, array(ids), now=number)
        table.evict(number - 1 if number else 0)

    assert budget.used == table.bytes


def test_half_the_storage_keeps_values_to_eight_bits() -> None:
    spec = TableSpec(name="t", columns=5, storage="bfloat16", optimizer=Optimizer(rule="adagrad"))
    half, full = create_table(spec, 0), create_table(spec.model_copy(update={"storage": "float32"}), 0)
    ids, gradients = np.arange(300), np.random.default_rng(1).standard_normal((300, 5)).astype(np.float32)
    for table in (half, full):
        pull(table, ids)
        table.push(ids, gradients, 0.1, 1)

    np.testing.assert_allclose(pull(half, ids), pull(full, ids), rtol=2**-7)
    assert half.bytes < full.bytes


def test_what_does_not_fit_is_refused_with_what_was_expected() -> None:
    table = create_table(TableSpec(name="t", columns=4), seed=0)
    with pytest.raises(ValueError, match=r"gradients: expected 3 x 4. Received: 3 x 5"):
        table.push(np.arange(3), np.zeros((3, 5), np.float32), 0.1, 1)
    with pytest.raises(TypeError):
        table.pull(np.arange(3, dtype=np.int32), np.zeros((3, 4), np.float32))


def test_threads_that_push_at_once_lose_nothing() -> None:
    spec = TableSpec(name="t", columns=4, initializer=Initializer(kind="zeros"))
    table, ids = create_table(spec, seed=0), np.arange(3000)
    ones = np.ones((3000, 4), np.float32)

    def push() -> None:
        for _ in range(50):
            table.push(ids, ones, 1.0, 1)
            pull(table, ids)

    threads = [threading.Thread(target=push) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (pull(table, ids) == -200.0).all()


@pytest.mark.parametrize("storage", ["float32", "bfloat16"])
def test_rows_are_put_where_there_are_none(storage: Literal["float32", "bfloat16"]) -> None:
    spec = TableSpec(
        name="t",
        columns=2,
        storage=storage,
        admit_after=2,
        optimizer=Optimizer(rule="adagrad", initial_accumulator=0.5),
    )
    table = create_table(spec, seed=0)
    table.load(array([4]), np.full((1, 2), 9.0, np.float32), np.full((1, 2), 7.0, np.float32))

    assert table.find(array([3, 4])).tolist() == [0, 1]
    assert table.put(array([3, 4, 5]), np.array([[1, 2], [3, 4], [5, 6]], np.float32)).tolist() == [1, 0, 1]
    assert table.put(array([3, 5]), np.zeros((2, 2), np.float32)).tolist() == [0, 0]
    assert everything(table) == {
        3: ([1.0, 2.0], [0.5, 0.5]), 4: ([9.0, 9.0], [7.0, 7.0]), 5: ([5.0, 6.0], [0.5, 0.5]),
    }  # fmt: skip


def test_what_threads_wait_for_each_other_is_known() -> None:
    table = create_table(TableSpec(name="t", columns=64), seed=0)
    assert table.waited_ns == 0
    ids, gradients = np.arange(20_000), np.ones((20_000, 64), np.float32)
    threads = [threading.Thread(target=lambda: [table.push(ids, gradients, 1.0, 1) for _ in range(20)]) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert table.waited_ns > 0
