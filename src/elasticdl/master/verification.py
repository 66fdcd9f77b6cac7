"""What a journal holds, whether it can be believed, and what is lost where it cannot. Nothing of it is changed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass

from elasticdl.errors import JournalDamaged, JournalUnreadable
from elasticdl.frames import Decoder, Writer, is_state, salvage
from elasticdl.master import codec
from elasticdl.master.replay import replay
from elasticdl.master.state import JobState
from elasticdl.spec import JobSpec


@dataclass(frozen=True, slots=True)
class StoredJournal:
    """The bytes of a journal, and where they were found."""

    where: str
    content: bytes
    can_be_torn: bool  # it is a file
    entries: int = 0  # of the event log, which is written after it; counted before it was read


@dataclass(slots=True)
class Verification:
    """What was found; all of it is whole where there is no `problem`."""

    writer: Writer | None = None
    events: int = 0  # that are believed: all, or those before the damage
    until: float = 0.0  # when the last of them happened; 0.0: there is none
    step: int = 0  # they lead to
    torn_bytes: int = 0  # of a write that was cut off, or is under way
    problem: JournalDamaged | JournalUnreadable | None = None
    lost_events: int = 0  # that can be read behind the damage
    lost_until: float = 0.0  # when the last of them happened


def verify(stored: StoredJournal, spec: JobSpec) -> Verification:
    """Read it all, and replay it, as a master would."""
    if not stored.content and not stored.can_be_torn:
        return Verification()  # nothing was written yet
    found, reading, state = Verification(), _Reading(stored), JobState(spec)
    try:
        for at, _ in replay(reading, state):
            found.events, found.until = found.events + 1, at
    except JournalDamaged as exc:
        found.problem = JournalDamaged(exc.at, exc.why, stored.where)
        _salvage(found, stored.content[exc.at :])
    except JournalUnreadable as exc:
        found.problem = JournalUnreadable(exc.by, stored.where)
    known = state.job.ledger.entries
    if found.problem is None and stored.entries > known:
        why = f"its end is missing: the event log has {stored.entries} entries, and it leads to {known}"
        found.problem = JournalDamaged(len(stored.content), why, stored.where)
    found.writer, found.torn_bytes = reading.writer, reading.decoder.torn_bytes
    found.step = state.job.ledger.step
    return found


def _salvage(found: Verification, content: bytes) -> None:
    for record in salvage(content):
        if is_state(record):
            continue
        try:
            _, found.lost_until = codec.load(record)
        except codec.UnknownEvent:
            continue
        found.lost_events += 1


class _Reading:
    def __init__(self, stored: StoredJournal) -> None:
        self.decoder = Decoder(io.BytesIO(stored.content).read, len(stored.content), can_be_torn=stored.can_be_torn)

    @property
    def writer(self) -> Writer | None:
        return self.decoder.writer

    def replay(self) -> Iterator[bytes]:
        return self.decoder.records()
