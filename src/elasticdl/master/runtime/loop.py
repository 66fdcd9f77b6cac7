"""The master's loop: takes events, decides, journals, acts. All side effects of the master happen here."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator
from typing import Any

from elasticdl.clock import Clock, OffsetClock
from elasticdl.errors import JournalDamaged
from elasticdl.master.machine import actions as act
from elasticdl.master.machine import events as ev
from elasticdl.master.machine.membership import LeaseReply
from elasticdl.master.machine.phase import FinalPhase
from elasticdl.master.machine.state_machine import StateMachine
from elasticdl.master.ps_fleet import ps_events
from elasticdl.master.runtime import codec
from elasticdl.master.runtime.event_log import EventLog
from elasticdl.master.runtime.executor import ActionRunner
from elasticdl.master.runtime.journal import FileJournal, JournalStore
from elasticdl.master.runtime.replay import replay_journal
from elasticdl.master.views import status
from elasticdl.rpc.server import ReplicaStream
from elasticdl.spec import JobSpec, WorkerId
from elasticdl.spec.directory import JobDirectory, write_json

TICK_S = 0.05
IDLE_TICK_S = 0.25  # without a connected replica: on a full cluster many masters wait
# Requests for leases are delayed this long, so that one sync of the journal serves several.
GROUP_COMMIT_S = 0.001
_log = logging.getLogger(__name__)
# Not journaled: the next heartbeat brings the same information.
_HEARTBEATS = (ev.HeartbeatReceived, ps_events.PsHeartbeatReceived)
# Executed again on replay, because a killed master may not have drawn them; points in the files are not drawn twice.
_RECORDED = (act.RecordLosses, act.RecordMetrics)


class SteadyClock:
    """Wall time at the start, then a monotonic clock: a jump of the wall clock must not make workers look silent."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        return self._offset + time.monotonic()


class MasterLoop:
    """Takes events by `submit`. A turn handles all new events, decides, syncs the journal, then acts."""

    def __init__(
        self,
        directory: JobDirectory,
        spec: JobSpec,
        clock: Clock,
        run: int,
        journal: JournalStore | None = None,
        *,
        initial_snapshot: str = "",
    ) -> None:
        """`run` is the number of this run of the job; `journal` is used instead of the file in the job directory.

        `initial_snapshot` is a checkpoint with rows of ps that the job starts from; "": there is none.
        """
        self.run = run
        self.clock = clock
        self.machine = StateMachine(spec, str(directory.logs), initial_snapshot)
        self.streams: dict[WorkerId, ReplicaStream] = {}
        self.over = asyncio.Event()
        self.crashed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._directory = directory
        self._journal: JournalStore = journal or FileJournal(directory.journal, run)
        self._log = EventLog(directory.events)
        self._inbox: list[ev.Event] = []
        self._journaled_waiters: list[asyncio.Future[None]] = []
        self._replies: dict[tuple[str, int], list[asyncio.Future[LeaseReply | None]]] = {}
        self._watchers: set[asyncio.Event] = set()
        self._turn_due: asyncio.Handle | None = None
        self._is_urgent = False
        self._last_turn_monotonic = time.monotonic()
        self._last_turn_at = clock.now()
        self._spec = spec
        self.executor = ActionRunner(directory, spec, self.streams, run)

    def recover(self) -> None:
        """Replays the journal and completes the event log. Time continues from the last event."""
        self._log.open()
        last_event_at = 0.0
        for happened_at, actions in replay_journal(self._journal, self.machine):
            last_event_at = max(last_event_at, happened_at)
            for action in actions:
                if type(action) is act.WriteLogEntry and action.number > self._log.written:
                    self._log.write([action])
                elif type(action) in _RECORDED:
                    self.executor.execute(action)
        if (behind_s := last_event_at - self.clock.now()) > 0:
            # The wall clock was set back. Deadlines in the journal would be further away by as much, perhaps by a day.
            self.clock = OffsetClock(self.clock, behind_s)
        self._last_turn_at = self.clock.now()
        journaled, path = self.machine.state.ledger.entry_count, self._directory.events
        if self._log.written > journaled:  # entries are written after the journal is synced
            problem = (
                f"its end is missing, or all of it: {path} has {self._log.written} entries, and it leads to {journaled}"
            )
            raise JournalDamaged(0, problem, self._journal.location)

    async def run_ticks(self) -> None:
        """Schedules turns at regular times until cancelled, so that deadlines are noticed."""
        while True:
            self._schedule()
            await asyncio.sleep(TICK_S if self.streams else IDLE_TICK_S)

    @property
    def since_last_turn_s(self) -> float:
        """Seconds since the last turn; thread-safe. A running loop has several turns a second."""
        return time.monotonic() - self._last_turn_monotonic

    def submit(self, event: ev.Event) -> None:
        self._inbox.append(event)
        self._schedule()

    async def submit_and_wait(self, event: ev.Event) -> None:
        """Submits an event and waits until it is journaled and acted on."""
        journaled = asyncio.get_running_loop().create_future()
        self._journaled_waiters.append(journaled)
        self.submit(event)
        await journaled

    async def exchange(self, event: ev.ExchangeReceived) -> LeaseReply | None:
        reply: asyncio.Future[LeaseReply | None] = asyncio.get_running_loop().create_future()
        self._replies.setdefault((event.worker, event.request), []).append(reply)
        self._inbox.append(event)
        self._schedule(is_urgent=False)
        return await reply

    @contextlib.contextmanager
    def watch_changes(self) -> Iterator[asyncio.Event]:
        """An event that is set after every turn that changed something."""
        changed = asyncio.Event()
        self._watchers.add(changed)
        try:
            yield changed
        finally:
            self._watchers.discard(changed)

    def close(self) -> None:
        self._journal.close()
        self._log.close()

    def _schedule(self, *, is_urgent: bool = True) -> None:
        """Schedules a turn for the end of this iteration; turns for leases only are at least GROUP_COMMIT_S apart."""
        if self._is_urgent or (self._turn_due is not None and not is_urgent) or self.crashed.done():
            return
        loop = asyncio.get_running_loop()
        if self._turn_due is not None:
            self._turn_due.cancel()
        wait_s = 0.0 if is_urgent else self._last_turn_monotonic + GROUP_COMMIT_S - time.monotonic()
        self._is_urgent = wait_s <= 0
        self._turn_due = (
            loop.call_soon(self._guarded_turn) if wait_s <= 0 else loop.call_later(wait_s, self._guarded_turn)
        )

    def _guarded_turn(self) -> None:
        try:
            self._turn()
        except Exception as exc:
            # A turn that was not journaled did not happen: the next master continues before it.
            _log.exception("the master cannot continue")
            self.crashed.set_exception(exc)

    def _turn(self) -> None:
        self._turn_due, self._is_urgent = None, False
        self._last_turn_monotonic = time.monotonic()
        now = self.clock.now()
        if now - self._last_turn_at > self._spec.timing.heartbeat_timeout_s / 2:
            # The master itself was delayed: messages of its workers may not be read yet.
            self.machine.state.observed.forgive_silence(now)
        self._last_turn_at = now
        inbox, self._inbox = self._inbox, []
        waiters, self._journaled_waiters = self._journaled_waiters, []
        machine, journaled, actions = self.machine, list[bytes](), list[act.Action]()
        for event in inbox:
            actions += machine.handle(event, now)
            if type(event) not in _HEARTBEATS:
                journaled.append(codec.encode_event(event, now))
        while (decision := machine.due(now)) is not None:
            actions += machine.handle(decision, now)
            journaled.append(codec.encode_event(decision, now))
        if journaled:
            self._journal.append(journaled)
        self._perform(actions)
        for waiter in waiters:
            waiter.set_result(None)
        if inbox or journaled:
            for watcher in self._watchers:
                watcher.set()
        self._write_result()
        if self._journal.needs_compaction:
            self.executor.flush()  # compacted events are not replayed, so their points are not drawn again
            self._journal.compact(machine.dump_ledger())

    def _perform(self, actions: list[act.Action]) -> None:
        entries = []
        for action in actions:
            if type(action) is act.ReplyToExchange:
                for reply in self._replies.pop((action.worker, action.request), ()):
                    if not reply.done():
                        reply.set_result(action.reply)
            elif type(action) is act.WriteLogEntry:
                entries.append(action)
                entry = action.entry
                _log.info("%s %s %s", entry.kind, entry.replica, entry.reason)
            else:
                self.executor.execute(action)
        if entries:
            self._log.write(entries)

    def _write_result(self) -> None:
        phase = self.machine.state.ledger.phase
        if isinstance(phase, FinalPhase) and not self.over.is_set():
            document: dict[str, Any] = status.job_result(self.machine.state, phase)
            write_json(self._directory.result, document)
            self.over.set()
