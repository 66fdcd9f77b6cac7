"""The journal of a master as ConfigMaps: segments of its stream, and a head that says which of them count. Pure.

`frames` has the bytes of the stream. The API server writes a segment whole or not at all, so none is ever torn. A
segment that the head does not name is nobody's: a master died, or was replaced, between writing it and naming it.
"""

from __future__ import annotations

import base64
import io
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from elasticdl.errors import JournalDamaged, JournalUnreadable
from elasticdl.journal_frames import FORMAT, FrameDecoder

Document = dict[str, Any]

JOURNAL_LABEL = "elasticdl.org/journal"
# A segment that would grow beyond is followed by another: each write sends it whole, and the store of the cluster keeps
# all versions for minutes. A job that trains writes once a second; a hundred such must not fill a store of some GB.
SEGMENT_BYTES = 8 << 10
MAX_SEGMENT_BYTES = 512 << 10  # in one segment, if a single write is that large; a ConfigMap may have twice that
_CHECKSUM_BYTES = 9  # eight digits and a space


@dataclass(frozen=True, slots=True)
class JournalSegment:
    number: int  # 0: the head
    id: str  # unique: no other segment, of whatever number, ever has it
    writer: str  # who wrote it last
    content: bytes = b""
    version: str = ""  # of the ConfigMap, as read or written; "": not there yet
    uid: str = ""

    def has_same_content(self, other: JournalSegment) -> bool:
        """Whether both say the same, whatever their versions."""
        return replace(self, version="", uid="") == replace(other, version="", uid="")

    def has_room(self, size: int) -> bool:
        return len(self.content) + size <= SEGMENT_BYTES


class JournalHead(NamedTuple):
    """What the first of the ConfigMaps says."""

    segments: tuple[tuple[int, str], ...] = ()  # numbers and ids, in order
    has_state: bool = False  # the first record is a whole state, not an event

    def to_bytes(self) -> bytes:
        """With its checksum before it."""
        body = json.dumps({"format": FORMAT, **self._asdict()}).encode()
        return _checksum(body) + body

    @classmethod
    def from_segment(cls, head: JournalSegment) -> JournalHead:
        check, body = head.content[:_CHECKSUM_BYTES], head.content[_CHECKSUM_BYTES:]
        if check != _checksum(body):
            if head.content[:1] == b"[":
                raise JournalUnreadable("an earlier version of ElasticDL, in format 1")
            raise JournalDamaged(0, "its head has a wrong checksum")
        try:
            document = json.loads(body)
            if (number := int(document["format"])) != FORMAT:
                raise JournalUnreadable(f"another version of ElasticDL, in format {number}, and this one has {FORMAT}")
            return cls(tuple((int(n), str(id_)) for n, id_ in document["segments"]), bool(document["has_state"]))
        except (ValueError, TypeError, LookupError) as exc:
            raise JournalDamaged(0, f"its head cannot be read: {exc!r}") from exc


def config_map_name(name: str, number: int) -> str:
    return f"{name}-journal-{number:06}"


def to_config_map(segment: JournalSegment, name: str, namespace: str, owner_reference: Document) -> Document:
    metadata: Document = {"name": config_map_name(name, segment.number), "namespace": namespace}
    metadata |= {"labels": {JOURNAL_LABEL: name}, "ownerReferences": [owner_reference]}
    if segment.version:
        metadata["resourceVersion"] = segment.version
    words = {"number": str(segment.number), "id": segment.id, "writer": segment.writer}
    content = {"content": base64.b64encode(segment.content).decode()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": words, "binaryData": content}


def from_config_map(document: Document) -> JournalSegment:
    metadata = document["metadata"]
    try:
        words = document["data"]
        content = base64.b64decode((document.get("binaryData") or {}).get("content", ""), validate=True)
        number, version, uid = int(words["number"]), metadata["resourceVersion"], metadata["uid"]
        return JournalSegment(number, words["id"], words["writer"], content, version, uid)
    except (ValueError, TypeError, LookupError) as exc:
        raise JournalDamaged(0, f"ConfigMap {metadata.get('name')} cannot be read: {exc!r}") from exc


def select_segments(
    head: JournalSegment, found: Iterable[JournalSegment]
) -> tuple[list[JournalSegment], list[JournalSegment]]:
    """The segments that the head names, in order; and those that are nobody's."""
    by_id = {segment.id: segment for segment in found if segment.number}
    named = JournalHead.from_segment(head).segments
    for number, id_ in named:
        if id_ not in by_id:
            raise JournalDamaged(0, f"segment {number} of it is missing: somebody deleted or changed it")
    journal = [by_id.pop(id_) for _, id_ in named]
    return journal, list(by_id.values())


def read_stream(documents: Iterable[Document]) -> bytes:
    """The stream of a journal whose ConfigMaps were listed, in any order; b"" of one that was never written to."""
    found = [from_config_map(document) for document in documents]
    heads = [segment for segment in found if segment.number == 0]
    if not heads:
        raise JournalDamaged(0, "its head is missing")
    journal, _ = select_segments(heads[0], found)
    return b"".join(segment.content for segment in journal)


def stream_decoder(journal: Iterable[JournalSegment]) -> FrameDecoder:
    """Of their stream: a frame may begin in one segment and end in another."""
    stream = b"".join(segment.content for segment in journal)
    return FrameDecoder(io.BytesIO(stream).read, len(stream), can_be_torn=False)


def _checksum(body: bytes) -> bytes:
    return b"%08x " % zlib.crc32(body)


def split_stream(stream: bytes) -> list[bytes]:
    return [stream[at : at + MAX_SEGMENT_BYTES] for at in range(0, len(stream), MAX_SEGMENT_BYTES)]
