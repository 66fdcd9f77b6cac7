"""From the records of a journal to the state they led to."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from elasticdl import __version__
from elasticdl.errors import JournalDamaged, JournalUnreadable
from elasticdl.frames import is_state
from elasticdl.master import codec
from elasticdl.master.actions import Action
from elasticdl.master.journal import Replayable
from elasticdl.master.state import JobState


def replay(journal: Replayable, state: JobState) -> Iterator[tuple[float, list[Action]]]:
    """Lead `state` through every event of the journal: when it happened, and the actions it led to.

    JournalUnreadable where a record is of a version that knows more than this one.
    """
    for record in journal.replay():
        if is_state(record):
            _load_state(journal, state, record)
            continue
        try:
            event, at = codec.load(record)
        except codec.UnknownEvent as exc:
            raise _unreadable(journal, str(exc)) from exc
        yield at, state.handle(event, at)


def _load_state(journal: Replayable, state: JobState, record: bytes) -> None:
    # Fields that we do not know would be left out without a word.
    if journal.writer is not None and journal.writer.is_newer:
        raise _unreadable(journal, "a whole state")
    try:
        state.load(record)
    except ValidationError as exc:
        raise JournalDamaged(0, f"the state in it cannot be read: {exc}") from exc


def _unreadable(journal: Replayable, what: str) -> JournalUnreadable:
    by = journal.writer.version if journal.writer is not None else "unknown"
    return JournalUnreadable(f"ElasticDL {by}, and this is {__version__}, which cannot read {what}")
