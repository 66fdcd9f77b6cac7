"""Replays the records of a journal into a master's state, and verifies journals."""

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


def replay_journal(journal: ReadableJournal, machine: StateMachine) -> Iterator[tuple[float, list[Action]]]:
    """Lets `machine` handle every event of the journal; yields the time of each and the actions that it led to.

    Raises JournalUnreadable for a record of a newer version that this version does not know.
    """
    for record in journal.replay():
        if is_state_record(record):
            _load_state(journal, machine, record)
            continue
        try:
            event, happened_at = codec.decode_event(record)
        except codec.UnknownEvent as exc:
            raise _unreadable(journal, str(exc)) from exc
        yield happened_at, machine.handle(event, happened_at)


def _load_state(journal: ReadableJournal, machine: StateMachine, record: bytes) -> None:
    # Fields that only a newer version knows would be dropped silently.
    if journal.writer is not None and journal.writer.is_newer:
        raise _unreadable(journal, "a whole state")
    try:
        machine.load_ledger(record)
    except ValidationError as exc:
        raise JournalDamaged(0, f"its state cannot be read: {exc}") from exc


def _unreadable(journal: ReadableJournal, record_name: str) -> JournalUnreadable:
    version = journal.writer.version if journal.writer is not None else "unknown"
    return JournalUnreadable(f"ElasticDL {version}, and this is {__version__}, which cannot read {record_name}")


@dataclass(frozen=True, slots=True)
class StoredJournal:
    """The bytes of a journal and their location."""

    location: str
    content: bytes
    can_be_torn: bool  # true for a file
    entries: int = 0  # of the event log, which is written after the journal; counted before the journal was read


@dataclass(slots=True)
class JournalVerification:
    """The result of reading a journal; without a `problem` it is complete."""

    writer: JournalWriterInfo | None = None
    events: int = 0  # all events, or those before the damage
    last_event_at: float = 0.0  # when the last of them happened; 0.0 if there is none
    step: int = 0  # that these events lead to
    torn_bytes: int = 0  # of an incomplete write at the end
    problem: JournalDamaged | JournalUnreadable | None = None
    lost_events: int = 0  # readable events behind the damage
    last_lost_event_at: float = 0.0  # when the last of them happened


def verify_journal(stored: StoredJournal, spec: JobSpec) -> JournalVerification:
    """Reads and replays the whole journal as a master does."""
    if not stored.content and not stored.can_be_torn:
        return JournalVerification()  # nothing was written yet
    verification, reader, machine = JournalVerification(), _StoredJournalReader(stored), StateMachine(spec)
    try:
        for happened_at, _ in replay_journal(reader, machine):
            verification.events, verification.last_event_at = verification.events + 1, happened_at
    except JournalDamaged as exc:
        verification.problem = JournalDamaged(exc.offset, exc.reason, stored.location)
        _count_lost_events(verification, stored.content[exc.offset :])
    except JournalUnreadable as exc:
        verification.problem = JournalUnreadable(exc.writer, stored.location)
    journaled_entries = machine.state.ledger.entry_count
    if verification.problem is None and stored.entries > journaled_entries:
        description = (
            f"its end is missing: the event log has {stored.entries} entries, and it leads to {journaled_entries}"
        )
        verification.problem = JournalDamaged(len(stored.content), description, stored.location)
    verification.writer, verification.torn_bytes = reader.writer, reader.decoder.torn_bytes
    verification.step = machine.state.ledger.step
    return verification


def _count_lost_events(verification: JournalVerification, content: bytes) -> None:
    for record in salvage_records(content):
        if is_state_record(record):
            continue
        try:
            _, verification.last_lost_event_at = codec.decode_event(record)
        except codec.UnknownEvent:
            continue
        verification.lost_events += 1


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
