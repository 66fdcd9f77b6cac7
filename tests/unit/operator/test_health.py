"""Whether the operator works, not only whether its process runs."""

from __future__ import annotations

from elasticdl.operator.health import ReconcileTracker


def test_a_reconciliation_that_does_not_end_is_reported() -> None:
    now = [100.0]
    tracker = ReconcileTracker(max_reconcile_s=60.0, clock=lambda: now[0])

    with tracker.track("team/mnist"):
        now[0] += 60.0
        reason_in_time = tracker.stuck_reason
        now[0] += 1.0
        with tracker.track("team/other"):
            reason_after_timeout = tracker.stuck_reason

    assert reason_in_time == ""
    assert reason_after_timeout == "the reconciliation of team/mnist has been running for 61 s"
    assert tracker.stuck_reason == ""
