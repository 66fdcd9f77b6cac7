from __future__ import annotations

from itertools import islice

import pytest

from elasticdl.retry import backoff_delay, backoff_delays, retry_call


class FakeTime:
    """A clock that only `sleep` moves on."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sleeps: list[float] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds


class Flaky:
    """Fails so many times, then answers."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.failures, self.error = failures, error

    def __call__(self) -> str:
        if self.failures:
            self.failures -= 1
            raise self.error
        return "answer"


def is_timeout(error: Exception) -> bool:
    return isinstance(error, TimeoutError)


def test_delays_double_up_to_the_longest() -> None:
    assert list(islice(backoff_delays(0.1, 0.5, jitter=0.0), 5)) == [0.1, 0.2, 0.4, 0.5, 0.5]
    assert [backoff_delay(failures, 0.1, 0.5) for failures in range(4)] == [0.1, 0.2, 0.4, 0.5]
    assert backoff_delay(10**9, 1.0, 60.0) == 60.0


def test_jitter_shortens_a_delay_by_its_share_at_most() -> None:
    delays = list(islice(backoff_delays(1.0, 1.0, jitter=0.5), 100))

    assert all(0.5 <= delay <= 1.0 for delay in delays) and len(set(delays)) > 1


def test_a_call_is_repeated_until_it_succeeds() -> None:
    time, waits = FakeTime(), list[tuple[str, float]]()
    flaky = Flaky(3, TimeoutError("slow"))

    answer = retry_call(
        flaky,
        is_timeout,
        60.0,
        clock=time.clock,
        sleep=time.sleep,
        on_wait=lambda error, s: waits.append((str(error), s)),
    )

    assert (answer, time.sleeps) == ("answer", [0.1, 0.2, 0.4])
    assert [(text, round(s, 3)) for text, s in waits] == [("slow", 60.0), ("slow", 59.9), ("slow", 59.7)]


def test_an_error_that_is_not_transient_passes_at_once() -> None:
    time = FakeTime()

    with pytest.raises(KeyError):
        retry_call(Flaky(1, KeyError("x")), is_timeout, 60.0, clock=time.clock, sleep=time.sleep)

    assert time.sleeps == []


def test_the_last_error_passes_when_time_is_up() -> None:
    time = FakeTime()

    with pytest.raises(TimeoutError):
        retry_call(Flaky(10**6, TimeoutError()), is_timeout, 1.0, clock=time.clock, sleep=time.sleep)

    assert sum(time.sleeps) == pytest.approx(1.0)
