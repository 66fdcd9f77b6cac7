"""A master that is stuck is detected, and no other one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elasticdl.launcher.loop_monitor import CHECKS_PER_LIMIT, LoopHealth, LoopMonitor

LIMIT_S = 8.0
CHECK_S = LIMIT_S / CHECKS_PER_LIMIT


def check_until(monitor: LoopMonitor, start: float, end: float) -> list[LoopHealth]:
    """The results of regular checks."""
    healths, now = [], start
    while (now := now + CHECK_S) <= end:
        healths.append(monitor.check(now))
    return healths


def test_a_master_whose_loop_has_not_started_is_not_watched() -> None:
    monitor = LoopMonitor()
    assert monitor.check_interval_s is None
    assert monitor.check(1e9) is LoopHealth.HEALTHY


def test_a_stalled_master_is_asked_for_its_stacks_once_then_reported() -> None:
    monitor = LoopMonitor()
    monitor.record_heartbeat(100.0, LIMIT_S)
    healths = check_until(monitor, 100.0, 100.0 + LIMIT_S)
    assert healths == [LoopHealth.HEALTHY] * 3 + [LoopHealth.SILENT] + [LoopHealth.HEALTHY] * 3 + [LoopHealth.STALLED]
    monitor.record_heartbeat(109.0, LIMIT_S)
    assert monitor.check(109.0 + CHECK_S) is LoopHealth.HEALTHY


def test_a_launcher_that_was_itself_delayed_reports_no_stall() -> None:
    monitor = LoopMonitor()
    monitor.record_heartbeat(100.0, LIMIT_S)
    assert monitor.check(5000.0) is LoopHealth.HEALTHY
    assert check_until(monitor, 5000.0, 5000.0 + LIMIT_S)[-1] is LoopHealth.STALLED


def test_zero_turns_the_monitor_off() -> None:
    monitor = LoopMonitor()
    monitor.record_heartbeat(100.0, 0.0)
    assert monitor.check_interval_s is None
    assert monitor.check(1e9) is LoopHealth.HEALTHY


@given(st.lists(st.floats(0.0, 0.95 * LIMIT_S), min_size=1, max_size=30))
def test_a_master_is_stalled_exactly_if_no_beat_arrives_in_time(gaps: list[float]) -> None:
    monitor, now = LoopMonitor(), 0.0
    monitor.record_heartbeat(now, LIMIT_S)
    for gap in gaps:
        assert LoopHealth.STALLED not in check_until(monitor, now, now + gap)
        now += gap
        monitor.check(now)
        monitor.record_heartbeat(now, LIMIT_S)
    assert LoopHealth.STALLED in check_until(monitor, now, now + LIMIT_S + CHECK_S)
