"""Whether a master is noticed that stands still, and none that does not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elasticdl.launcher.loop_monitor import CHECKS_PER_LIMIT, LoopHealth, LoopMonitor

LIMIT_S = 8.0
LOOK_S = LIMIT_S / CHECKS_PER_LIMIT


def look_until(vigil: LoopMonitor, start: float, end: float) -> list[LoopHealth]:
    """What is found by looking in time."""
    found, now = [], start
    while (now := now + LOOK_S) <= end:
        found.append(vigil.check(now))
    return found


def test_a_master_that_has_not_turned_yet_is_not_watched() -> None:
    vigil = LoopMonitor()
    assert vigil.check_interval_s is None
    assert vigil.check(1e9) is LoopHealth.HEALTHY


def test_one_that_stands_still_is_asked_for_its_stacks_once_then_found_stalled() -> None:
    vigil = LoopMonitor()
    vigil.record_heartbeat(100.0, LIMIT_S)
    found = look_until(vigil, 100.0, 100.0 + LIMIT_S)
    assert found == [LoopHealth.HEALTHY] * 3 + [LoopHealth.SILENT] + [LoopHealth.HEALTHY] * 3 + [LoopHealth.STALLED]
    vigil.record_heartbeat(109.0, LIMIT_S)
    assert vigil.check(109.0 + LOOK_S) is LoopHealth.HEALTHY


def test_a_launcher_that_was_held_up_blames_nobody() -> None:
    vigil = LoopMonitor()
    vigil.record_heartbeat(100.0, LIMIT_S)
    assert vigil.check(5000.0) is LoopHealth.HEALTHY
    assert look_until(vigil, 5000.0, 5000.0 + LIMIT_S)[-1] is LoopHealth.STALLED


def test_zero_turns_it_off() -> None:
    vigil = LoopMonitor()
    vigil.record_heartbeat(100.0, 0.0)
    assert vigil.check_interval_s is None
    assert vigil.check(1e9) is LoopHealth.HEALTHY


@given(st.lists(st.floats(0.0, 0.95 * LIMIT_S), min_size=1, max_size=30))
def test_one_that_is_heard_in_time_is_never_found_stalled_and_one_that_is_not_always_is(gaps: list[float]) -> None:
    vigil, now = LoopMonitor(), 0.0
    vigil.record_heartbeat(now, LIMIT_S)
    for gap in gaps:
        assert LoopHealth.STALLED not in look_until(vigil, now, now + gap)
        now += gap
        vigil.check(now)
        vigil.record_heartbeat(now, LIMIT_S)
    assert LoopHealth.STALLED in look_until(vigil, now, now + LIMIT_S + LOOK_S)
