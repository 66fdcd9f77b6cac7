"""The journal: every event that changed the state, appended and synced before it is acted on.

A record is one event, or a whole state that stands for all before it; `frames` has the bytes. A master that died while
writing leaves a torn end; it was never acted on, and is cut off. Damage is refused, and the file left as it is.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from elasticdl.errors import JournalDamaged, JournalUnreadable
from elasticdl.journal_frames import FrameDecoder, FrameEncoder, JournalWriterInfo, is_state_record
from elasticdl.spec.directory import JobDirectory

_BUFFER_BYTES = 1 << 20
_log = logging.getLogger(__name__)

# A state of the job instead of the events that led to it, once replaying those would take seconds.
COMPACT_EVENTS = 1_000_000


class ReadableJournal(Protocol):
    """A journal that can be read."""

    @property
    def writer(self) -> JournalWriterInfo | None:
        """Who wrote the record that `replay` gave last."""

    def replay(self) -> Iterator[bytes]: ...


class JournalStore(ReadableJournal, Protocol):
    """What the master needs of a journal, in a file or elsewhere."""

    @property
    def location(self) -> str:
        """Where it lies, for a sentence."""

    @property
    def needs_compaction(self) -> bool:
        """Whether a whole state should stand for what is in it."""

    def append(self, payloads: list[bytes]) -> None: ...
    def compact(self, state: bytes) -> None: ...
    def close(self) -> None: ...


class FileJournal:
    """Read it once with `replay`, then append. Not for two processes at a time."""

    def __init__(self, path: Path, run: int) -> None:
        self._path = path
        self._us = JournalWriterInfo(run)
        self._encoder = FrameEncoder(self._us)
        self._descriptor = -1
        self._is_new = False  # the first write makes it
        self.location = str(path)
        self.writer: JournalWriterInfo | None = None  # of the record that `replay` gave last
        self.events = 0  # records since the last whole state

    def replay(self) -> Iterator[bytes]:
        """Every record, oldest first; cuts off a torn end, then the journal is open for appending.

        JournalDamaged or JournalUnreadable where it cannot be believed; then the file is as it was.
        """
        if self._path.exists():
            with self._path.open("rb", buffering=_BUFFER_BYTES) as file:
                decoder = FrameDecoder(file.read, os.fstat(file.fileno()).st_size, can_be_torn=True)
                try:
                    for record in decoder.read_records():
                        self._note(decoder.writer)
                        self.events = 0 if is_state_record(record) else self.events + 1
                        yield record
                    self._note(decoder.writer)
                except JournalDamaged as exc:
                    raise JournalDamaged(exc.offset, exc.why, self.location) from exc
                except JournalUnreadable as exc:
                    raise JournalUnreadable(exc.written_by, self.location) from exc
            self._encoder = decoder.continue_writing(self._us)
            self._descriptor = os.open(self._path, os.O_WRONLY)
            os.ftruncate(self._descriptor, decoder.offset)
            os.lseek(self._descriptor, 0, os.SEEK_END)
            if decoder.writer != self._us:
                _write(self._descriptor, self._encoder.encode_writer())
                os.fdatasync(self._descriptor)
        else:
            self._is_new = True

    def _note(self, writer: JournalWriterInfo | None) -> None:
        if writer is not self.writer and writer is not None and writer.run != self._us.run:
            raise JournalDamaged(0, f"it is of run {writer.run} of the job, and this is run {self._us.run}")
        self.writer = writer

    @property
    def needs_compaction(self) -> bool:
        return self.events >= COMPACT_EVENTS

    def append(self, payloads: list[bytes]) -> None:
        """Group commit: all of them are on disk when this returns."""
        if self._is_new:
            self._descriptor = self._replace(self._encoder.begin_stream() + self._encoder.encode_records(payloads))
            self._is_new = False
        else:
            _write(self._descriptor, self._encoder.encode_records(payloads))
            os.fdatasync(self._descriptor)
        self.events += len(payloads)

    def compact(self, state: bytes) -> None:
        """Begin anew with `state`. At any moment either the old or the new journal is whole."""
        self.close()
        self._descriptor = self._replace(self._encoder.begin_stream() + self._encoder.encode_records([state]))
        self.events = 0

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _replace(self, content: bytes) -> int:
        """Let the journal be this, whole; a descriptor to append to it."""
        staging = self._path.with_name(self._path.name + ".new")
        descriptor = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        _write(descriptor, content)
        os.fdatasync(descriptor)
        staging.replace(self._path)
        _sync_directory(self._path)
        return descriptor


def archive_earlier_run(directory: JobDirectory, run: int) -> None:
    """Move what an earlier run left on a claim out of the way, where a job was deleted and submitted again."""
    try:
        with directory.journal.open("rb") as file:
            decoder = FrameDecoder(file.read, os.fstat(file.fileno()).st_size, can_be_torn=True)
            next(decoder.read_records(), None)
    except (FileNotFoundError, JournalDamaged, JournalUnreadable):
        return  # who replays it will say so
    if decoder.writer is None or decoder.writer.run == run:
        return
    aside = directory.root / f"run-{decoder.writer.run}"
    aside.mkdir(exist_ok=True)
    # The journal last: should we die in between, the next master begins here again.
    for path in (directory.result, directory.events, directory.journal):
        if path.exists():
            path.rename(aside / path.name)
    _log.warning("what run %d of this job left is in %s: this is run %d", decoder.writer.run, aside, run)


def _write(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
