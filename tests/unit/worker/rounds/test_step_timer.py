from __future__ import annotations

import pytest

from elasticdl.worker.rounds import step_timer
from elasticdl.worker.rounds.step_timer import StepTimer


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(step_timer, "time", clock)
    return clock


def step(pace: StepTimer, clock: Clock, seconds: float, ranks: int = 1) -> float | None:
    pace.begin_step()
    clock.now += seconds
    pace.record_computed(ranks)
    return pace.record_applied()


def test_the_very_first_step_has_no_round_cost(clock: Clock) -> None:
    assert step(StepTimer(), clock, 3.0) == 0.0


def test_ordinary_steps_report_no_cost_and_define_the_usual_time(clock: Clock) -> None:
    pace = StepTimer()
    step(pace, clock, 0.1)

    assert step(pace, clock, 0.1) is None
    assert pace.step_s == pytest.approx(0.1)


def test_a_new_round_costs_what_it_took_beyond_an_ordinary_step(clock: Clock) -> None:
    pace = StepTimer()
    for _ in range(3):
        step(pace, clock, 0.1)
    clock.now += 0.7
    pace.begin_round()

    assert step(pace, clock, 0.1) == pytest.approx(0.7)
    assert pace.step_s == pytest.approx(0.1), "a change of round is no ordinary step"
    assert step(pace, clock, 0.1) is None


def test_a_round_that_made_a_step_faster_has_no_cost(clock: Clock) -> None:
    pace = StepTimer()
    for _ in range(3):
        step(pace, clock, 0.1)
    pace.begin_round()

    assert step(pace, clock, 0.05) == 0.0


def test_the_time_of_a_logical_rank_is_a_share_of_the_computation(clock: Clock) -> None:
    pace = StepTimer()
    step(pace, clock, 0.4, ranks=4)

    assert pace.compute_s == pytest.approx(0.1)


def test_one_slow_step_does_not_define_the_usual_time(clock: Clock) -> None:
    pace = StepTimer()
    for seconds in (0.1, 0.1, 0.1, 1.1):
        step(pace, clock, seconds)

    assert 0.1 < pace.step_s < 0.4


def update(pace: StepTimer, clock: Clock, compute_s: float, wait_s: float, passes: int) -> None:
    pace.begin_step()
    clock.now += compute_s
    pace.record_computed(2, passes)
    clock.now += wait_s
    pace.record_applied()


def test_an_update_of_several_passes_reports_the_time_of_a_single_pass(clock: Clock) -> None:
    pace = StepTimer()
    for _ in range(3):
        update(pace, clock, compute_s=0.4, wait_s=0.05, passes=4)

    assert pace.timed_steps == 2, "the first of a round is left out"
    assert pace.pass_s == pytest.approx(0.1)
    assert pace.one_pass_step_s == pytest.approx(0.15)
    assert pace.step_s == pytest.approx(0.45)
    assert pace.compute_s == pytest.approx(0.05)


def test_times_of_an_earlier_round_are_discarded(clock: Clock) -> None:
    pace = StepTimer()
    for _ in range(3):
        update(pace, clock, compute_s=0.4, wait_s=0.1, passes=1)
    pace.begin_round()
    for _ in range(2):
        update(pace, clock, compute_s=0.2, wait_s=0.1, passes=1)

    assert (pace.timed_steps, pace.one_pass_step_s, pace.pass_s) == (1, pytest.approx(0.3), pytest.approx(0.2))
