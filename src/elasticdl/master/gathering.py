"""News of pods that need no hurry, told together: each turn of the master is a write of its journal.

A job of fifty workers hears a hundred times in a few seconds that a pod waits, and then that it runs. Nobody acts on
that: a worker that runs greets by itself. The end of a pod, or trouble, is told at once, and all that came before it
first: the order stays.
"""

from __future__ import annotations

from collections.abc import Callable

from elasticdl.master import events as ev

CALM_S = 0.5

Later = Callable[[float, Callable[[], None]], object]  # as `call_later` of an event loop


class Gathered:
    """`submit` hears what `hear` was told, at most `calm_s` later."""

    def __init__(self, submit: Callable[[ev.Event], None], later: Later, calm_s: float = CALM_S) -> None:
        self._submit = submit
        self._later = later
        self._calm_s = calm_s
        self._events: list[ev.Event] = []

    def hear(self, event: ev.Event) -> None:
        is_calm = isinstance(event, ev.ReplicaStarted) or (isinstance(event, ev.ReplicaWaits) and not event.is_trouble)
        self._events.append(event)
        if not is_calm:
            self._tell()
        elif len(self._events) == 1:
            self._later(self._calm_s, self._tell)

    def _tell(self) -> None:
        events, self._events = self._events, []
        for event in events:
            self._submit(event)
