"""The master's journal in ConfigMaps, for jobs without a volume. It has the interface of the journal in a file.

A write takes effect by one update, which names the version that it replaces: of the last segment, which grows, or of
the head, which lists other segments. A master that replays the journal takes it over by writing its id into both. If
the previous master still runs, its next write fails.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from elasticdl.errors import JournalDamaged, JournalUnreadable, TransientError
from elasticdl.journal_frames import FrameEncoder, JournalWriterInfo
from elasticdl.kube.api import Api
from elasticdl.kube.errors import AlreadyExists, ApiUnavailable, Conflict, NotFound
from elasticdl.kube.kinds import CONFIG_MAP
from elasticdl.master.kubernetes import journal_segments
from elasticdl.master.kubernetes.journal_segments import JournalHead, JournalSegment
from elasticdl.retry import backoff_delays

Document = dict[str, Any]
_T = TypeVar("_T")


_log = logging.getLogger(__name__)
COMPACT_BYTES = 256 << 10  # of events, after which a whole state should replace them


class JournalError(TransientError):
    """This master can no longer write; the next one can."""

    exit_code = 75  # EX_TEMPFAIL: not a code that ends the job


class JournalTaken(JournalError):
    """Another master writes the journal, so this one must end."""


class ConfigMapJournal:
    """Read it once with `replay`, then append. After a failed write all others fail: its outcome is unknown."""

    def __init__(
        self,
        api: Api,
        name: str,
        namespace: str,
        owner_reference: Document,
        run: int,
        *,
        timeout_s: float = 60.0,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._api = api
        self._name = name
        self._namespace = namespace
        self._owner_reference = owner_reference
        self._timeout_s = timeout_s  # for which an unavailable API server is retried
        self._sleep = sleep
        self._writer = uuid.uuid4().hex
        self._own_info = JournalWriterInfo(run)
        self.location = f"the journal of {name} in ConfigMaps"
        self._encoder = FrameEncoder(self._own_info)
        self.writer: JournalWriterInfo | None = None  # of the record that `replay` yielded last
        self._writer_frame = b""  # written before the next record if the writer has changed
        self._created_segments = 0
        self._failure = "the journal has not been read yet"
        self._head = JournalSegment(0, "head", self._writer, JournalHead().to_bytes())
        self._segments: list[JournalSegment] = []
        self.events = 0  # records since the last whole state
        self.grown_bytes = 0  # their size

    @property
    def needs_compaction(self) -> bool:
        return self.grown_bytes > COMPACT_BYTES

    def replay(self) -> Iterator[bytes]:
        """Takes the journal over and yields every record, oldest first."""
        self._failure = ""
        self._take_over()
        has_state = JournalHead.from_segment(self._head).has_state
        if not self._segments:
            return
        decoder = journal_segments.stream_decoder(self._segments)
        try:
            for position, record in enumerate(decoder.read_records()):
                self.writer = decoder.writer
                if self.writer is not None and self.writer.run != self._own_info.run:
                    self._discard_earlier_run(self.writer.run)
                    return
                if position > 0 or not has_state:
                    self._count([record])
                yield record
        except JournalDamaged as exc:
            raise JournalDamaged(exc.offset, exc.reason, self.location) from exc
        except JournalUnreadable as exc:
            raise JournalUnreadable(exc.writer, self.location) from exc
        self._encoder = decoder.continue_writing(self._own_info)
        self._writer_frame = self._encoder.encode_writer() if decoder.writer != self._own_info else b""

    def _discard_earlier_run(self, run: int) -> None:
        """Removes what the cluster has not deleted yet of a job that was deleted and submitted again."""
        _log.warning("the journal of run %d of %s is removed: this is run %d", run, self._name, self._own_info.run)
        old_segments, self.writer = self._segments, None
        self._write_head([], has_state=False)
        self._delete(old_segments)

    def append(self, payloads: list[bytes]) -> None:
        """Appends all payloads in one write: they are in the journal when this returns, or none if the master dies."""
        if not self._segments:
            self._writer_frame = self._encoder.begin_stream()
        stream, self._writer_frame = self._writer_frame + self._encoder.encode_records(payloads), b""
        if self._segments and self._segments[-1].has_room(len(stream)):
            last = self._segments[-1]
            self._segments[-1] = self._put(replace(last, content=last.content + stream), last)
        else:
            self._write_head(
                [*self._segments, *self._create_segments(stream)],
                has_state=JournalHead.from_segment(self._head).has_state,
            )
        self._count(payloads)

    def compact(self, state: bytes) -> None:
        """Replaces all records by `state`. At every moment either the old or the new journal is complete."""
        old_segments = self._segments
        stream, self._writer_frame = self._encoder.begin_stream() + self._encoder.encode_records([state]), b""
        self._write_head(self._create_segments(stream), has_state=True)
        self.events, self.grown_bytes = 0, 0
        self._delete(old_segments)

    def close(self) -> None:
        self._failure = "the journal is closed"

    def _count(self, payloads: list[bytes]) -> None:
        self.events += len(payloads)
        self.grown_bytes += sum(map(len, payloads))

    def _create_segments(self, stream: bytes) -> list[JournalSegment]:
        """Creates new segments, which are unused until the head lists them."""
        number = self._segments[-1].number if self._segments else 0
        segments: list[JournalSegment] = []
        for content in journal_segments.split_stream(stream):
            self._created_segments += 1
            segments.append(self._create(number + 1, f"{self._writer}-{self._created_segments}", content))
            number = segments[-1].number
        return segments

    def _create(self, number: int, id_: str, content: bytes) -> JournalSegment:
        """Creates a segment with this number, or a greater one if the number is in use."""
        while True:
            try:
                return self._put(JournalSegment(number, id_, self._writer, content), None)
            except JournalTaken:
                # A replaced master left a segment with this number. If this master is the replaced one, writing the
                # head will fail.
                self._failure, number = "", number + 1

    def _write_head(self, segments: list[JournalSegment], *, has_state: bool) -> None:
        head = JournalHead(tuple((segment.number, segment.id) for segment in segments), has_state)
        self._head = self._put(replace(self._head, content=head.to_bytes()), self._head)
        self._segments = segments

    def _take_over(self) -> None:
        """Writes this master's id into the head, so that no other lists segments, then into the last segment.

        After both no other master can write.
        """
        deadline = time.monotonic() + self._timeout_s
        for delay_s in backoff_delays():
            try:
                old_head = self._read(0)
                self._head = self._put(replace(old_head or self._head, writer=self._writer), old_head)
                self._segments, unused = journal_segments.select_segments(self._head, self._list())
                if self._segments:
                    last = self._segments[-1]
                    self._segments[-1] = self._put(replace(last, writer=self._writer), last)
                head = self._read(0)
                if head is None or not head.has_same_content(self._head):
                    raise JournalTaken(f"another master takes over the journal of {self._name}")
                self._delete(unused)
                return
            except JournalTaken:  # by another new master: one of the two has to give up
                if time.monotonic() > deadline:
                    raise
                self._failure = ""
                self._sleep(delay_s)

    def _put(self, segment: JournalSegment, previous: JournalSegment | None) -> JournalSegment:
        """Writes a segment in place of `previous`; None: creates it. Raises JournalTaken if another master wrote it.

        A write of this master whose response was lost is recognized.
        """
        if self._failure:
            raise JournalError(self._failure)
        call = self._api.create if previous is None else self._api.replace
        try:
            while True:
                document = journal_segments.to_config_map(segment, self._name, self._namespace, self._owner_reference)
                try:
                    return journal_segments.from_config_map(self._call_with_retries(call, document))
                except (AlreadyExists, Conflict, NotFound) as exc:
                    if previous is None and isinstance(exc, NotFound):
                        raise  # the namespace does not exist
                    stored = self._read(segment.number)
                    if stored is not None and stored.has_same_content(segment):
                        return stored  # written by an attempt whose response was lost
                    if stored is None or previous is None or not stored.has_same_content(previous):
                        raise JournalTaken(f"another master writes the journal of {self._name}: {exc}") from exc
                    segment = replace(segment, version=stored.version)  # only its metadata was changed
        except BaseException as exc:
            self._failure = f"a write before this one failed: {exc}"
            raise

    def _read(self, number: int) -> JournalSegment | None:
        config_map_name = journal_segments.config_map_name(self._name, number)
        config_map = self._call_with_retries(self._api.get, CONFIG_MAP, config_map_name, self._namespace)
        return journal_segments.from_config_map(config_map) if config_map is not None else None

    def _list(self) -> list[JournalSegment]:
        labels = f"{journal_segments.JOURNAL_LABEL}={self._name}"
        config_maps, _ = self._call_with_retries(self._api.list, CONFIG_MAP, self._namespace, labels)
        return [journal_segments.from_config_map(config_map) for config_map in config_maps]

    def _delete(self, segments: list[JournalSegment]) -> None:
        for segment in segments:
            name = journal_segments.config_map_name(self._name, segment.number)
            # By uid, because a later master may have created a segment of the same number.
            self._call_with_retries(self._api.delete, CONFIG_MAP, name, self._namespace, None, segment.uid)

    def _call_with_retries(self, call: Callable[..., _T], *arguments: Any) -> _T:
        """Repeats the call while the API server is unavailable, for `timeout_s`."""
        deadline = time.monotonic() + self._timeout_s
        for delay_s in backoff_delays():
            try:
                return call(*arguments)
            except ApiUnavailable as exc:
                if time.monotonic() + delay_s > deadline:
                    self._failure = f"the API server did not answer for {self._timeout_s:g} s: {exc}"
                    raise JournalError(self._failure) from exc
                self._sleep(delay_s)
        raise AssertionError("the delays never end")
