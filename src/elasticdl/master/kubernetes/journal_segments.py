"""The journal of a master as ConfigMaps: segments of its stream, and a head that lists the valid ones. Pure.

`journal_frames` defines the bytes of the stream. The API server writes a segment whole or not at all, so none is ever
torn. A segment that the head does not list is unused: its master ended between writing it and listing it.
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
# A segment that would become larger is followed by a new one: each write sends the whole segment, and etcd keeps all
# its versions for minutes. A training job writes once a second, and a hundred jobs must not fill an etcd of a few GB.
SEGMENT_BYTES = 8 << 10
MAX_SEGMENT_BYTES = 512 << 10  # of a single write; a ConfigMap may have twice that
_CHECKSUM_BYTES = 9  # eight digits and a space


@dataclass(frozen=True, slots=True)
class JournalSegment:
    number: int  # 0: the head
    id: str  # unique among all segments that were ever written
    writer: str  # id of the journal object that wrote it last
    content: bytes = b""
    version: str = ""  # of the ConfigMap, as read or written; "": it does not exist yet
    uid: str = ""

    def has_same_content(self, other: JournalSegment) -> bool:
        """Whether both are equal apart from their versions."""
        return replace(self, version="", uid="") == replace(other, version="", uid="")

    def has_room(self, size: int) -> bool:
        return len(self.content) + size <= SEGMENT_BYTES


class JournalHead(NamedTuple):
    """The content of the head, which is the first of the ConfigMaps."""

    segments: tuple[tuple[int, str], ...] = ()  # numbers and ids, in order
    has_state: bool = False  # the first record is a whole state, not an event

    def to_bytes(self) -> bytes:
        """JSON after its checksum."""
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
    data = {"number": str(segment.number), "id": segment.id, "writer": segment.writer}
    content = {"content": base64.b64encode(segment.content).decode()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data, "binaryData": content}


def from_config_map(document: Document) -> JournalSegment:
    metadata = document["metadata"]
    try:
        data = document["data"]
        content = base64.b64decode((document.get("binaryData") or {}).get("content", ""), validate=True)
        number, version, uid = int(data["number"]), metadata["resourceVersion"], metadata["uid"]
        return JournalSegment(number, data["id"], data["writer"], content, version, uid)
    except (ValueError, TypeError, LookupError) as exc:
        raise JournalDamaged(0, f"ConfigMap {metadata.get('name')} cannot be read: {exc!r}") from exc


def select_segments(
    head: JournalSegment, segments: Iterable[JournalSegment]
) -> tuple[list[JournalSegment], list[JournalSegment]]:
    """The segments that the head lists, in order; and the unused ones."""
    by_id = {segment.id: segment for segment in segments if segment.number}
    listed = JournalHead.from_segment(head).segments
    for number, id_ in listed:
        if id_ not in by_id:
            raise JournalDamaged(0, f"its segment {number} is missing: it was deleted or changed")
    journal = [by_id.pop(id_) for _, id_ in listed]
    return journal, list(by_id.values())


def read_stream(documents: Iterable[Document]) -> bytes:
    """The stream of the journal in these ConfigMaps, in any order; b"" if nothing was written yet."""
    segments = [from_config_map(document) for document in documents]
    heads = [segment for segment in segments if segment.number == 0]
    if not heads:
        raise JournalDamaged(0, "its head is missing")
    journal, _ = select_segments(heads[0], segments)
    return b"".join(segment.content for segment in journal)


def stream_decoder(journal: Iterable[JournalSegment]) -> FrameDecoder:
    """A decoder of the segments' stream: a frame may begin in one segment and end in another."""
    stream = b"".join(segment.content for segment in journal)
    return FrameDecoder(io.BytesIO(stream).read, len(stream), can_be_torn=False)


def _checksum(body: bytes) -> bytes:
    return b"%08x " % zlib.crc32(body)


def split_stream(stream: bytes) -> list[bytes]:
    return [stream[start : start + MAX_SEGMENT_BYTES] for start in range(0, len(stream), MAX_SEGMENT_BYTES)]
