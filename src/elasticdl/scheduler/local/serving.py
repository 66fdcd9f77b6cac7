"""The scheduler's process: gather what happened, decide, write it down, carry it out."""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from elasticdl.errors import SpecError
from elasticdl.scheduler.local.events import Action, Ended, Event, Found, StopAsked, Submitted
from elasticdl.scheduler.local.hands import Hands
from elasticdl.scheduler.local.queue import Queue
from elasticdl.scheduler.local.recovery import recover
from elasticdl.scheduler.local.standing import Report, State
from elasticdl.scheduler.local.turns import Turns

POLL_S = 0.2  # the queue is looked at so often
SAVE_S = 1.0  # accounts are written down so often
GREET_S = 3.0  # masters of jobs that were found may take so long to be heard before anything is decided

Show = Callable[[Report, list[Ended]], None]


class Server:
    """Serves one queue until it is told to stop. Jobs go on without it."""

    def __init__(self, queue: Queue, turns: Turns, show: Show, say: Callable[[str], None]) -> None:
        """`show` is given every report, with the jobs that ended since the last; `say` what a person must know."""
        self._queue = queue
        self._turns = turns
        self._show = show
        self._say = say
        self._news: SimpleQueue[Event | None] = SimpleQueue()  # None: look whether to stop
        self._hands = Hands(queue, self._news.put)
        self._unreadable: set[str] = set()
        self._is_stopping = False
        self._saved_at = 0.0
        self._decisions = 0  # that are written down

    def stop(self) -> None:
        """From a signal handler or another thread."""
        self._is_stopping = True
        self._news.put(None)

    def run(self) -> None:
        self._turn(self._greet(recover(self._queue, self._say)))
        while not self._is_stopping:
            self._turn([*self._heard(POLL_S), *self._asked()])

    def _greet(self, found: list[Event]) -> list[Event]:
        """What is heard of jobs that run already, so that the first plan knows what they have."""
        running = {one.submission.name for one in found if isinstance(one, Found) and one.state is not State.WAITING}
        for name in running:
            self._hands.follow(name)
        events, deadline = list(found), time.monotonic() + GREET_S
        while running and not self._is_stopping and time.monotonic() < deadline:
            heard = self._heard(POLL_S)
            running -= {event.name for event in heard if not isinstance(event, Submitted | Found)}
            events += heard
        return events

    def _turn(self, events: list[Event]) -> None:
        now = time.time()
        actions = self._turns.step(events, now)
        ended = [event for event in events if isinstance(event, Ended) and event.name not in self._turns.book.entries]
        self._write_down(actions, ended, now)
        for event in ended:
            self._queue.remove(event.name)
        for action in actions:
            self._hands.carry_out(action)
        self._hands.reap()

    def _write_down(self, actions: list[Action], ended: list[Ended], now: float) -> None:
        """Before anything is done: a scheduler after us must know what we may have begun."""
        decisions = self._turns.loop.decisions
        if not actions and not ended and decisions == self._decisions and now - self._saved_at < SAVE_S:
            return
        report = self._turns.report(now)
        report.save(self._queue.plan)
        self._saved_at, self._decisions = now, decisions
        self._show(report, ended)

    def _heard(self, timeout_s: float) -> list[Event]:
        """All there is, after up to `timeout_s` without anything."""
        events: list[Event] = []
        try:
            while True:
                event = self._news.get(timeout=0.0 if events else timeout_s)
                if event is None:
                    return events
                events.append(event)
        except Empty:
            return events

    def _asked(self) -> list[Event]:
        """What people put into the queue."""
        known = self._turns.book.entries
        found: list[Event] = []
        names = self._queue.names()
        for name in names:
            if name not in known and name not in self._unreadable:
                try:
                    submission = self._queue.find(name)
                except SpecError as exc:
                    self._unreadable.add(name)
                    self._say(f"{name} is left alone: {exc}")
                    continue
                found += [Submitted(submission)] if submission else []
        for name in self._queue.asked_to_stop():
            if name in names:
                found.append(StopAsked(name))
            else:
                self._queue.remove(name)  # the mark of a job that was over by then
        return found
