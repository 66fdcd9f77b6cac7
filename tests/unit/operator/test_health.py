"""Whether the operator is well: not only that its process is there."""

from __future__ import annotations

from elasticdl.operator.health import ReconcileTracker


def test_a_look_that_does_not_end_is_told() -> None:
    now = [100.0]
    looks = ReconcileTracker(longest_s=60.0, clock=lambda: now[0])

    with looks.track("team/mnist"):
        now[0] += 60.0
        fine = looks.silence_reason
        now[0] += 1.0
        with looks.track("team/other"):
            stuck = looks.silence_reason

    assert fine == ""
    assert stuck == "a look at team/mnist has not ended for 61 s"
    assert looks.silence_reason == ""
