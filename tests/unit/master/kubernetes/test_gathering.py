"""Which news of pods may wait, and that none overtakes another."""

from __future__ import annotations

from collections.abc import Callable

from elasticdl.master.kubernetes.backend import EventBatcher
from elasticdl.master.machine import events as ev

ENDED = ev.ReplicaExited(ev.ReplicaExit("worker-1", 1, None, None, "deleted", "the pod was deleted"))
TROUBLE = ev.ReplicaDelayed("worker-2", "no node has room", True)
WAITS = ev.ReplicaDelayed("worker-0", "", False)
STARTED = ev.ReplicaStarted("worker-0", 1)


class World:
    def __init__(self) -> None:
        self.told: list[ev.Event] = []
        self.due: list[Callable[[], None]] = []
        self.gathered = EventBatcher(self.told.append, lambda _, call: self.due.append(call))

    def hear(self, *events: ev.Event) -> list[ev.Event]:
        for event in events:
            self.gathered.add(event)
        return self.told


def test_that_pods_wait_or_run_is_told_together_a_moment_later() -> None:
    world = World()

    at_once = list(world.hear(WAITS, STARTED))
    (later,) = world.due
    later()

    assert at_once == []
    assert world.told == [WAITS, STARTED]


def test_the_end_of_a_pod_and_trouble_are_told_at_once_and_what_came_before_them_first() -> None:
    assert World().hear(STARTED, ENDED) == [STARTED, ENDED]
    assert World().hear(WAITS, TROUBLE) == [WAITS, TROUBLE]


def test_each_is_told_once_though_its_moment_comes_after_that() -> None:
    world = World()
    world.hear(STARTED, ENDED, WAITS)

    for later in world.due:
        later()

    assert world.told == [STARTED, ENDED, WAITS]
