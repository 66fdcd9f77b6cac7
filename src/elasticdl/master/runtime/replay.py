"""From the records of a journal to the state they led to, and whether a journal can be believed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import ValidationError

from elasticdl import __version__
from elasticdl.errors import JournalDamaged, JournalUnreadable
from elasticdl.journal_frames import FrameDecoder, JournalWriterInfo, is_state_record, salvage_records
from elasticdl.master.machine.actions import Action
from elasticdl.master.machine.state_machine import StateMachine
from elasticdl.master.runtime import codec
from elasticdl.master.runtime.journal import ReadableJournal
from elasticdl.spec import JobSpec


def replay_journal(journal: ReadableJournal, state: StateMachine) -> Iterator[tuple[float, list[Action]]]:
    """Lead `state` through every event of the journal: when it happened, and the actions it led to.

    JournalUnreadable where a record is of a version that knows more than this one.
    """
    for record in journal.replay():
        if is_state_record(record):
            _load_state(journal, state, record)
            continue
        try:
            event, at = codec.decode_event(record)
        except codec.UnknownEvent as exc:
            raise _unreadable(journal, str(exc)) from exc
        yield at, state.handle(event, at)


def _load_state(journal: ReadableJournal, state: StateMachine, record: bytes) -> None:
    # Fields that we do not know would be left out without a word.
    if journal.writer is not None and journal.writer.is_newer:
        raise _unreadable(journal, "a whole state")
    try:
        state.load_ledger(record)
    except ValidationError as exc:
        raise JournalDamaged(0, f"the state in it cannot be read: {exc}") from exc


def _unreadable(journal: ReadableJournal, what: str) -> JournalUnreadable:
    by = journal.writer.version if journal.writer is not None else "unknown"
    return JournalUnreadable(f"ElasticDL {by}, and this is {__version__}, which cannot read {what}")


@dataclass(frozen=True, slots=True)
class StoredJournal:
    """The bytes of a journal, and where they were found."""

    location: str
    content: bytes
    can_be_torn: bool  # it is a file
    entries: int = 0  # of the event log, which is written after it; counted before it was read


@dataclass(slots=True)
class JournalVerification:
    """What was found; all of it is whole where there is no `problem`."""

    writer: JournalWriterInfo | None = None
    events: int = 0  # that are believed: all, or those before the damage
    last_event_at: float = 0.0  # when the last of them happened; 0.0: there is none
    step: int = 0  # they lead to
    torn_bytes: int = 0  # of a write that was cut off, or is under way
    problem: JournalDamaged | JournalUnreadable | None = None
    lost_events: int = 0  # that can be read behind the damage
    last_lost_event_at: float = 0.0  # when the last of them happened


def verify_journal(stored: StoredJournal, spec: JobSpec) -> JournalVerification:
    """Read it all, and replay it, as a master would."""
    if not stored.content and not stored.can_be_torn:
        return JournalVerification()  # nothing was written yet
    found, reading, state = JournalVerification(), _StoredJournalReader(stored), StateMachine(spec)
    try:
        for at, _ in replay_journal(reading, state):
            found.events, found.last_event_at = found.events + 1, at
    except JournalDamaged as exc:
        found.problem = JournalDamaged(exc.offset, exc.why, stored.location)
        _count_lost_events(found, stored.content[exc.offset :])
    except JournalUnreadable as exc:
        found.problem = JournalUnreadable(exc.written_by, stored.location)
    known = state.state.ledger.entry_count
    if found.problem is None and stored.entries > known:
        why = f"its end is missing: the event log has {stored.entries} entries, and it leads to {known}"
        found.problem = JournalDamaged(len(stored.content), why, stored.location)
    found.writer, found.torn_bytes = reading.writer, reading.decoder.torn_bytes
    found.step = state.state.ledger.step
    return found


def _count_lost_events(found: JournalVerification, content: bytes) -> None:
    for record in salvage_records(content):
        if is_state_record(record):
            continue
        try:
            _, found.last_lost_event_at = codec.decode_event(record)
        except codec.UnknownEvent:
            continue
        found.lost_events += 1


class _StoredJournalReader:
    def __init__(self, stored: StoredJournal) -> None:
        self.decoder = FrameDecoder(
            io.BytesIO(stored.content).read, len(stored.content), can_be_torn=stored.can_be_torn
        )

    @property
    def writer(self) -> JournalWriterInfo | None:
        return self.decoder.writer

    def replay(self) -> Iterator[bytes]:
        return self.decoder.read_records()
