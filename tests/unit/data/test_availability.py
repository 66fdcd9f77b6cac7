from __future__ import annotations

import pytest

from elasticdl.data.availability import retry_until_available
from elasticdl.errors import DatabaseUnavailable, DataUnavailable


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.waits.append(seconds)


def away_until(clock: Clock, returns_at: float) -> str:
    if clock.now < returns_at:
        raise DatabaseUnavailable("no answer")
    return "rows"


def test_waits_grow_until_the_database_is_back() -> None:
    clock = Clock()

    result = retry_until_available(
        lambda: away_until(clock, 20), "a table", 60, clock=lambda: clock.now, wait=clock.wait
    )

    assert result == "rows"
    assert clock.waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]


def test_waiting_ends_with_the_reason_and_the_fix() -> None:
    clock = Clock()

    with pytest.raises(DataUnavailable, match=r"a table: .*did not answer for 7 s: no answer; .*--data_retry_s"):
        retry_until_available(lambda: away_until(clock, 60), "a table", 7, clock=lambda: clock.now, wait=clock.wait)

    assert clock.now == pytest.approx(7)


def test_other_errors_are_not_waited_for() -> None:
    clock = Clock()

    with pytest.raises(ZeroDivisionError):
        retry_until_available(lambda: 1 / 0, "a table", 7, clock=lambda: clock.now, wait=clock.wait)

    assert clock.waits == []
