"""How long a serving thread has been at one request."""

from __future__ import annotations

from elasticdl.ps.server.ps_server import BusyTimer


class ManualClock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def pass_time(timer: BusyTimer, clock: ManualClock, seconds: float) -> float:
    sample = 0.0
    for _ in range(round(seconds / 0.25)):
        clock.now += 0.25
        sample = timer.sample_busy_s()
    return sample


def test_a_request_that_does_not_end_grows_old_whatever_the_other_threads_do() -> None:
    clock = ManualClock()
    timer = BusyTimer(2, clock)
    with timer.track_request(0):
        assert pass_time(timer, clock, 0.25) == 0.0
        for _ in range(10):
            with timer.track_request(1):
                pass
            age_s = pass_time(timer, clock, 1.0)
        assert age_s == 10.0
    assert timer.sample_busy_s() == 0.0


def test_idle_threads_and_many_short_requests_have_no_age() -> None:
    clock = ManualClock()
    timer = BusyTimer(1, clock)
    assert pass_time(timer, clock, 100.0) == 0.0
    for _ in range(10):
        with timer.track_request(0):
            assert pass_time(timer, clock, 0.25) == 0.0


def test_a_process_that_was_stopped_has_not_aged() -> None:
    clock = ManualClock()
    timer = BusyTimer(1, clock)
    with timer.track_request(0):
        timer.sample_busy_s()
        clock.now += 3600.0
        assert timer.sample_busy_s() == 1.0
