"""Whether a master is noticed that stands still, and none that does not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elasticdl.launcher.vigil import LOOKS, Finding, Vigil

LIMIT_S = 8.0
LOOK_S = LIMIT_S / LOOKS


def look_until(vigil: Vigil, start: float, end: float) -> list[Finding]:
    """What is found by looking in time."""
    found, now = [], start
    while (now := now + LOOK_S) <= end:
        found.append(vigil.look(now))
    return found


def test_a_master_that_has_not_turned_yet_is_not_watched() -> None:
    vigil = Vigil()
    assert vigil.wait_s is None
    assert vigil.look(1e9) is Finding.FINE


def test_one_that_stands_still_is_asked_for_its_stacks_once_then_found_stalled() -> None:
    vigil = Vigil()
    vigil.hear(100.0, LIMIT_S)
    found = look_until(vigil, 100.0, 100.0 + LIMIT_S)
    assert found == [Finding.FINE] * 3 + [Finding.SILENT] + [Finding.FINE] * 3 + [Finding.STALLED]
    vigil.hear(109.0, LIMIT_S)
    assert vigil.look(109.0 + LOOK_S) is Finding.FINE


def test_a_launcher_that_was_held_up_blames_nobody() -> None:
    vigil = Vigil()
    vigil.hear(100.0, LIMIT_S)
    assert vigil.look(5000.0) is Finding.FINE
    assert look_until(vigil, 5000.0, 5000.0 + LIMIT_S)[-1] is Finding.STALLED


def test_zero_turns_it_off() -> None:
    vigil = Vigil()
    vigil.hear(100.0, 0.0)
    assert vigil.wait_s is None
    assert vigil.look(1e9) is Finding.FINE


@given(st.lists(st.floats(0.0, 0.95 * LIMIT_S), min_size=1, max_size=30))
def test_one_that_is_heard_in_time_is_never_found_stalled_and_one_that_is_not_always_is(gaps: list[float]) -> None:
    vigil, now = Vigil(), 0.0
    vigil.hear(now, LIMIT_S)
    for gap in gaps:
        assert Finding.STALLED not in look_until(vigil, now, now + gap)
        now += gap
        vigil.look(now)
        vigil.hear(now, LIMIT_S)
    assert Finding.STALLED in look_until(vigil, now, now + LIMIT_S + LOOK_S)
