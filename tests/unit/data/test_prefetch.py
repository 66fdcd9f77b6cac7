from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from elasticdl.data.interface import Indices, Record
from elasticdl.data.prefetch import Prefetcher
from elasticdl.errors import DataError

PATIENCE_S = 20.0


@dataclass
class GatedSource:
    """A source that tells what it reads, and whose background reads wait to be let through."""

    can_read_ahead: bool = True
    name: str = "gated"
    columns: tuple[str, ...] = ()
    requests: list[tuple[str, list[int]]] = field(default_factory=list)
    gate: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    started: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    caller: int = field(default_factory=threading.get_ident)

    def __len__(self) -> int:
        return 1000

    def read(self, indices: Indices) -> list[Record]:
        is_caller = threading.get_ident() == self.caller
        self.requests.append(("caller" if is_caller else "ahead", indices.tolist()))
        if not is_caller:
            self.started.release()
            assert self.gate.acquire(timeout=PATIENCE_S)
        if 13 in indices:
            raise DataError("record 13 is damaged")
        return [f"record {index}" for index in indices]

    def place(self, index: int) -> str:
        return str(index)

    def close(self) -> None:
        self.requests.append(("closed", []))


def numbers(*values: int) -> Indices:
    return np.array(values, dtype=np.int64)


def wait(semaphore: threading.Semaphore) -> None:
    assert semaphore.acquire(timeout=PATIENCE_S)


def test_expected_records_are_read_ahead_and_each_once() -> None:
    source = GatedSource()
    with Prefetcher(source) as ahead:
        ahead.expect([("a", numbers(1, 2)), ("b", numbers(3))])
        source.gate.release(2)
        wait(source.started)
        wait(source.started)

        assert ahead.take("a", numbers(1, 2)) == ["record 1", "record 2"]
        assert ahead.take("b", numbers(3)) == ["record 3"]

    assert source.requests == [("ahead", [1, 2]), ("ahead", [3])]


def test_no_more_is_read_ahead_than_the_depth() -> None:
    source = GatedSource()
    with Prefetcher(source, depth=2) as ahead:
        ahead.expect([(step, numbers(step)) for step in range(5)])
        source.gate.release(5)
        for step in range(4):
            wait(source.started)
            assert len(source.requests) <= step + 2
            ahead.take(step, numbers(step))

    assert [indices for _, indices in source.requests][:4] == [[0], [1], [2], [3]]


def test_what_is_no_longer_expected_is_dropped_and_never_given() -> None:
    source = GatedSource()
    with Prefetcher(source) as ahead:
        ahead.expect([("a", numbers(1)), ("b", numbers(2))])
        wait(source.started)
        ahead.expect([("a", numbers(7)), ("c", numbers(9))])
        source.gate.release(3)
        wait(source.started)

        assert ahead.take("a", numbers(7)) == ["record 7"]
        assert ahead.take("c", numbers(9)) == ["record 9"]
        assert ahead.take("b", numbers(5)) == ["record 5"]

    assert ("ahead", [2]) not in source.requests
    assert source.requests[1] == ("ahead", [7])


def test_what_is_still_expected_is_kept() -> None:
    source = GatedSource()
    with Prefetcher(source) as ahead:
        ahead.expect([("a", numbers(1)), ("b", numbers(2))])
        source.gate.release(3)
        wait(source.started)
        wait(source.started)
        ahead.expect([("b", numbers(2)), ("c", numbers(3))])

        assert ahead.take("b", numbers(2)) == ["record 2"]

    assert [indices for _, indices in source.requests].count([2]) == 1


def test_other_indices_under_an_expected_key_are_read_and_not_confused() -> None:
    source = GatedSource()
    with Prefetcher(source) as ahead:
        ahead.expect([("a", numbers(1))])
        source.gate.release(1)
        wait(source.started)

        assert ahead.take("a", numbers(2)) == ["record 2"]


def test_a_read_that_is_under_way_is_waited_for_and_not_done_twice() -> None:
    source = GatedSource()
    taken: list[list[Record]] = []
    with Prefetcher(source) as ahead:
        ahead.expect([("a", numbers(1))])
        wait(source.started)
        taker = threading.Thread(target=lambda: taken.append(ahead.take("a", numbers(1))))
        taker.start()
        source.gate.release()
        taker.join(PATIENCE_S)

    assert taken == [["record 1"]]
    assert source.requests == [("ahead", [1])]


def test_records_nobody_expected_are_read_by_the_caller() -> None:
    source = GatedSource()
    with Prefetcher(source) as ahead:
        assert ahead.take("a", numbers(4)) == ["record 4"]

    assert source.requests == [("caller", [4])]


def test_an_error_of_reading_is_raised_where_the_records_are_taken() -> None:
    source = GatedSource()
    with Prefetcher(source) as ahead:
        ahead.expect([("a", numbers(13)), ("b", numbers(1))])
        source.gate.release(2)
        wait(source.started)

        with pytest.raises(DataError, match="record 13 is damaged"):
            ahead.take("a", numbers(13))
        assert ahead.take("b", numbers(1)) == ["record 1"]


def test_code_of_the_user_runs_in_the_calling_thread_only() -> None:
    source = GatedSource(can_read_ahead=False)
    with Prefetcher(source) as ahead:
        ahead.expect([("a", numbers(1))])

        assert ahead.take("a", numbers(1)) == ["record 1"]

    assert source.requests == [("caller", [1])]


@pytest.mark.parametrize("prepare", [lambda ahead: None, lambda ahead: ahead.expect([("a", numbers(1))])])
def test_closing_ends_the_thread_and_leaves_the_source_open(prepare: Callable[[Prefetcher], None]) -> None:
    source = GatedSource()
    source.gate.release(1)
    ahead = Prefetcher(source)
    with ahead:
        prepare(ahead)

    ahead.close()

    assert not any(thread.name == "elasticdl-prefetch" for thread in threading.enumerate())
    assert ("closed", []) not in source.requests
