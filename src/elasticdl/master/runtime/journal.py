"""The journal: every event that changed the state, appended and synced before it is acted on.

A record is one event, or a whole state that replaces all records before it; `journal_frames` defines the bytes. A
master that is killed while it writes leaves a torn end, which was never acted on and is removed. A damaged journal is
an error, and its file is not changed.
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

# Then a state of the job replaces the events that led to it, because replaying them would take seconds.
COMPACT_EVENTS = 1_000_000


class ReadableJournal(Protocol):
    """A journal that can be read."""

    @property
    def writer(self) -> JournalWriterInfo | None:
        """The writer of the record that `replay` yielded last."""

    def replay(self) -> Iterator[bytes]: ...


class JournalStore(ReadableJournal, Protocol):
    """The journal that a master writes, in a file or in ConfigMaps."""

    @property
    def location(self) -> str:
        """Its location, for messages."""

    @property
    def needs_compaction(self) -> bool:
        """Whether a whole state should replace its records."""

    def append(self, payloads: list[bytes]) -> None: ...
    def compact(self, state: bytes) -> None: ...
    def close(self) -> None: ...


class FileJournal:
    """Read it once with `replay`, then append. Only one process may use the file at a time."""

    def __init__(self, path: Path, run: int) -> None:
        self._path = path
        self._own_info = JournalWriterInfo(run)
        self._encoder = FrameEncoder(self._own_info)
        self._descriptor = -1
        self._is_new = False  # the first write creates the file
        self.location = str(path)
        self.writer: JournalWriterInfo | None = None  # of the record that `replay` yielded last
        self.events = 0  # records since the last whole state

    def replay(self) -> Iterator[bytes]:
        """Yields every record, oldest first, then removes a torn end and opens the journal for appending.

        Raises JournalDamaged or JournalUnreadable and leaves the file as it is if it cannot be read.
        """
        if self._path.exists():
            with self._path.open("rb", buffering=_BUFFER_BYTES) as file:
                decoder = FrameDecoder(file.read, os.fstat(file.fileno()).st_size, can_be_torn=True)
                try:
                    for record in decoder.read_records():
                        self._record_writer(decoder.writer)
                        self.events = 0 if is_state_record(record) else self.events + 1
                        yield record
                    self._record_writer(decoder.writer)
                except JournalDamaged as exc:
                    raise JournalDamaged(exc.offset, exc.reason, self.location) from exc
                except JournalUnreadable as exc:
                    raise JournalUnreadable(exc.writer, self.location) from exc
            self._encoder = decoder.continue_writing(self._own_info)
            self._descriptor = os.open(self._path, os.O_WRONLY)
            os.ftruncate(self._descriptor, decoder.offset)
            os.lseek(self._descriptor, 0, os.SEEK_END)
            if decoder.writer != self._own_info:
                _write(self._descriptor, self._encoder.encode_writer())
                os.fdatasync(self._descriptor)
        else:
            self._is_new = True

    def _record_writer(self, writer: JournalWriterInfo | None) -> None:
        if writer is not self.writer and writer is not None and writer.run != self._own_info.run:
            raise JournalDamaged(0, f"it belongs to run {writer.run} of the job, and this is run {self._own_info.run}")
        self.writer = writer

    @property
    def needs_compaction(self) -> bool:
        return self.events >= COMPACT_EVENTS

    def append(self, payloads: list[bytes]) -> None:
        """Appends all payloads in one write; they are on disk when this returns."""
        if self._is_new:
            self._descriptor = self._replace(self._encoder.begin_stream() + self._encoder.encode_records(payloads))
            self._is_new = False
        else:
            _write(self._descriptor, self._encoder.encode_records(payloads))
            os.fdatasync(self._descriptor)
        self.events += len(payloads)

    def compact(self, state: bytes) -> None:
        """Replaces all records by `state`. At every moment either the old or the new journal is complete."""
        self.close()
        self._descriptor = self._replace(self._encoder.begin_stream() + self._encoder.encode_records([state]))
        self.events = 0

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _replace(self, content: bytes) -> int:
        """Replaces the file by this content. Returns a descriptor to append to it."""
        staging = self._path.with_name(self._path.name + ".new")
        descriptor = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        _write(descriptor, content)
        os.fdatasync(descriptor)
        staging.replace(self._path)
        _sync_directory(self._path)
        return descriptor


def archive_earlier_run(directory: JobDirectory, run: int) -> None:
    """Moves the files of an earlier run aside, where a job with a claim was deleted and submitted again."""
    try:
        with directory.journal.open("rb") as file:
            decoder = FrameDecoder(file.read, os.fstat(file.fileno()).st_size, can_be_torn=True)
            next(decoder.read_records(), None)
    except (FileNotFoundError, JournalDamaged, JournalUnreadable):
        return  # replaying it will raise the error
    if decoder.writer is None or decoder.writer.run == run:
        return
    archive = directory.root / f"run-{decoder.writer.run}"
    archive.mkdir(exist_ok=True)
    # The journal last: if this master is killed in between, the next one starts here again.
    for path in (directory.result, directory.events, directory.journal):
        if path.exists():
            path.rename(archive / path.name)
    _log.warning("moved the files of run %d of this job to %s: this is run %d", decoder.writer.run, archive, run)


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
