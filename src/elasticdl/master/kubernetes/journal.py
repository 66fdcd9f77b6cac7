"""The master's journal in ConfigMaps, for jobs without a volume. The interface is that of the journal in a file.

Each write names the version it follows, and takes effect by one of two: of the last segment (it grows), or of the
head (other segments count from now on). Whoever replays the journal takes it over by putting its name into both. A
master before it, should it still live, fails with its next write.
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
COMPACT_BYTES = 256 << 10  # then a whole state should replace the events


class JournalError(TransientError):
    """This master cannot write any more; the next one can."""

    exit_code = 75  # EX_TEMPFAIL: not a code that ends the job


class JournalTaken(JournalError):
    """Another master writes the journal: this one must end."""


class ConfigMapJournal:
    """Read it once with `replay`, then append. A write that failed is the last: nobody knows what became of it."""

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
        self._timeout_s = timeout_s  # that the API server may be away
        self._sleep = sleep
        self._writer = uuid.uuid4().hex
        self._us = JournalWriterInfo(run)
        self.location = f"the journal of {name} in ConfigMaps"
        self._encoder = FrameEncoder(self._us)
        self.writer: JournalWriterInfo | None = None  # of the record that `replay` gave last
        self._introduction = b""  # who writes, where that is to be said before the next record
        self._begun = 0
        self._failure = "the journal has not been read yet"
        self._head = JournalSegment(0, "head", self._writer, JournalHead().to_bytes())
        self._segments: list[JournalSegment] = []
        self.events = 0  # records since the last whole state
        self.grown_bytes = 0  # and what they weigh

    @property
    def needs_compaction(self) -> bool:
        return self.grown_bytes > COMPACT_BYTES

    def replay(self) -> Iterator[bytes]:
        """Take the journal over; then every record, oldest first."""
        self._failure = ""
        self._take_over()
        has_state = JournalHead.from_segment(self._head).has_state
        if not self._segments:
            return
        decoder = journal_segments.stream_decoder(self._segments)
        try:
            for position, record in enumerate(decoder.read_records()):
                self.writer = decoder.writer
                if self.writer is not None and self.writer.run != self._us.run:
                    self._discard_earlier_run(self.writer.run)
                    return
                if position > 0 or not has_state:
                    self._count([record])
                yield record
        except JournalDamaged as exc:
            raise JournalDamaged(exc.offset, exc.why, self.location) from exc
        except JournalUnreadable as exc:
            raise JournalUnreadable(exc.written_by, self.location) from exc
        self._encoder = decoder.continue_writing(self._us)
        self._introduction = self._encoder.encode_writer() if decoder.writer != self._us else b""

    def _discard_earlier_run(self, run: int) -> None:
        """The job was deleted and submitted again before the cluster has removed all that belonged to it."""
        _log.warning("the journal of run %d of %s is removed: this is run %d", run, self._name, self._us.run)
        earlier, self.writer = self._segments, None
        self._write_head([], has_state=False)
        self._delete(earlier)

    def append(self, payloads: list[bytes]) -> None:
        """Group commit: the API server has all of them when this returns, or (should we die) none."""
        if not self._segments:
            self._introduction = self._encoder.begin_stream()
        stream, self._introduction = self._introduction + self._encoder.encode_records(payloads), b""
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
        """Begin anew with `state`. At any moment either the old or the new journal is whole."""
        old = self._segments
        stream, self._introduction = self._encoder.begin_stream() + self._encoder.encode_records([state]), b""
        self._write_head(self._create_segments(stream), has_state=True)
        self.events, self.grown_bytes = 0, 0
        self._delete(old)

    def close(self) -> None:
        self._failure = "the journal is closed"

    def _count(self, payloads: list[bytes]) -> None:
        self.events += len(payloads)
        self.grown_bytes += sum(map(len, payloads))

    def _create_segments(self, stream: bytes) -> list[JournalSegment]:
        """New segments, of no effect until the head names them."""
        number, begun = self._segments[-1].number if self._segments else 0, list[JournalSegment]()
        for piece in journal_segments.split_stream(stream):
            self._begun += 1
            number, segment = self._create(number + 1, f"{self._writer}-{self._begun}", piece)
            begun.append(segment)
        return begun

    def _create(self, number: int, id_: str, piece: bytes) -> tuple[int, JournalSegment]:
        while True:
            try:
                return number, self._put(JournalSegment(number, id_, self._writer, piece), None)
            except JournalTaken:
                # Left there by a master that was replaced. Should it be us who was, then the head will say so.
                self._failure, number = "", number + 1

    def _write_head(self, journal: list[JournalSegment], *, has_state: bool) -> None:
        named = JournalHead(tuple((segment.number, segment.id) for segment in journal), has_state)
        self._head = self._put(replace(self._head, content=named.to_bytes()), self._head)
        self._segments = journal

    def _take_over(self) -> None:
        """First the head: then nobody else names segments. Next the last of them: then nobody else writes at all."""
        end = time.monotonic() + self._timeout_s
        for pause in backoff_delays():
            try:
                known = self._read(0)
                self._head = self._put(replace(known or self._head, writer=self._writer), known)
                self._segments, nobodys = journal_segments.select_segments(self._head, self._list())
                if self._segments:
                    last = self._segments[-1]
                    self._segments[-1] = self._put(replace(last, writer=self._writer), last)
                found = self._read(0)
                if found is None or not found.has_same_content(
                    self._head
                ):  # another newcomer: one of us has to give way
                    raise JournalTaken(f"another master takes over the journal of {self._name}")
                self._delete(nobodys)
                return
            except JournalTaken:
                if time.monotonic() > end:
                    raise
                self._failure = ""
                self._sleep(pause)

    def _put(self, wanted: JournalSegment, known: JournalSegment | None) -> JournalSegment:
        """Write a segment as it follows what is `known`; tells our own half-done write from another master's."""
        if self._failure:
            raise JournalError(self._failure)
        call = self._api.create if known is None else self._api.replace
        try:
            while True:
                document = journal_segments.to_config_map(wanted, self._name, self._namespace, self._owner_reference)
                try:
                    return journal_segments.from_config_map(self._call_with_retries(call, document))
                except (AlreadyExists, Conflict, NotFound) as exc:
                    if known is None and isinstance(exc, NotFound):
                        raise  # not even the namespace is there
                    found = self._read(wanted.number)
                    if found is not None and found.has_same_content(wanted):
                        return found  # written by a try whose answer was lost
                    if found is None or known is None or not found.has_same_content(known):
                        raise JournalTaken(f"another master writes the journal of {self._name}: {exc}") from exc
                    wanted = replace(wanted, version=found.version)  # somebody touched it, but wrote nothing
        except BaseException as exc:
            self._failure = f"a write before this one failed: {exc}"
            raise

    def _read(self, number: int) -> JournalSegment | None:
        found = self._call_with_retries(
            self._api.get, CONFIG_MAP, journal_segments.config_map_name(self._name, number), self._namespace
        )
        return journal_segments.from_config_map(found) if found is not None else None

    def _list(self) -> list[JournalSegment]:
        labels = f"{journal_segments.JOURNAL_LABEL}={self._name}"
        found, _ = self._call_with_retries(self._api.list, CONFIG_MAP, self._namespace, labels)
        return [journal_segments.from_config_map(one) for one in found]

    def _delete(self, unwanted: list[JournalSegment]) -> None:
        for segment in unwanted:
            name = journal_segments.config_map_name(self._name, segment.number)
            # By its uid: a master after us may have begun one of the same number.
            self._call_with_retries(self._api.delete, CONFIG_MAP, name, self._namespace, None, segment.uid)

    def _call_with_retries(self, call: Callable[..., _T], *arguments: Any) -> _T:
        """Through an API server that is away, for a while."""
        end = time.monotonic() + self._timeout_s
        for pause in backoff_delays():
            try:
                return call(*arguments)
            except ApiUnavailable as exc:
                if time.monotonic() + pause > end:
                    self._failure = f"the API server did not answer for {self._timeout_s:g} s: {exc}"
                    raise JournalError(self._failure) from exc
                self._sleep(pause)
        raise AssertionError("pauses never end")
