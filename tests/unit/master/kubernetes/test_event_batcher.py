"""Which events of pods may wait, and that none overtakes another."""

from __future__ import annotations

from collections.abc import Callable

from elasticdl.master.kubernetes.backend import EventBatcher
from elasticdl.master.machine import events as ev

ENDED = ev.ReplicaExited(ev.ReplicaExit("worker-1", 1, None, None, "deleted", "the pod was deleted"))
TROUBLE = ev.ReplicaDelayed("worker-2", "no node has room", True)
WAITS = ev.ReplicaDelayed("worker-0", "", False)
STARTED = ev.ReplicaStarted("worker-0", 1)


class BatcherDriver:
    """An EventBatcher whose timers run when a test says so."""

    def __init__(self) -> None:
        self.submitted: list[ev.Event] = []
        self.timers: list[Callable[[], None]] = []
        self._batcher = EventBatcher(self.submitted.append, lambda _, call: self.timers.append(call))

    def add(self, *events: ev.Event) -> list[ev.Event]:
        """The events that have been submitted then."""
        for event in events:
            self._batcher.add(event)
        return list(self.submitted)


def test_reports_that_pods_wait_or_run_are_submitted_together_a_moment_later() -> None:
    driver = BatcherDriver()

    submitted_at_once = driver.add(WAITS, STARTED)
    (timer,) = driver.timers
    timer()

    assert submitted_at_once == []
    assert driver.submitted == [WAITS, STARTED]


def test_the_end_of_a_pod_and_trouble_are_submitted_at_once_after_all_earlier_events() -> None:
    assert BatcherDriver().add(STARTED, ENDED) == [STARTED, ENDED]
    assert BatcherDriver().add(WAITS, TROUBLE) == [WAITS, TROUBLE]


def test_each_event_is_submitted_once_though_a_timer_runs_afterwards() -> None:
    driver = BatcherDriver()
    driver.add(STARTED, ENDED, WAITS)

    for timer in driver.timers:
        timer()

    assert driver.submitted == [STARTED, ENDED, WAITS]
