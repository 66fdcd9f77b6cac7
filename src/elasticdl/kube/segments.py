"""The journal of a master as ConfigMaps: segments with records, and a head that says which of them count. Pure.

A record is its length and its payload. A segment that the head does not name is nobody's: a master died, or was
replaced, between writing it and naming it.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from elasticdl.errors import PermanentError

Document = dict[str, Any]

JOURNAL_LABEL = "elasticdl.org/journal"
# A segment that would grow beyond is followed by another: each write sends it whole, and the store of the cluster keeps
# all versions for minutes. A job that trains writes once a second; a hundred such must not fill a store of some GB.
FULL_BYTES = 8 << 10
MOST_BYTES = 512 << 10  # in one segment, if a single write is that large; a ConfigMap may have twice that
_LENGTH = struct.Struct("<I")


class JournalDamaged(PermanentError):
    """A segment of the journal is missing: somebody deleted it."""


@dataclass(frozen=True, slots=True)
class Segment:
    number: int  # 0: the head
    id: str  # unique: no other segment, of whatever number, ever has it
    writer: str  # who wrote it last
    content: bytes = b""
    version: str = ""  # of the ConfigMap, as read or written; "": not there yet
    uid: str = ""

    def is_as(self, other: Segment) -> bool:
        """Whether both say the same, whatever their versions."""
        return replace(self, version="", uid="") == replace(other, version="", uid="")

    def has_room(self, size: int) -> bool:
        return len(self.content) + size <= FULL_BYTES


class Head(NamedTuple):
    """What the first of the ConfigMaps says."""

    segments: tuple[tuple[int, str], ...] = ()  # numbers and ids, in order
    has_state: bool = False  # the first record is a whole state, not an event

    def to_bytes(self) -> bytes:
        return json.dumps(self).encode()

    @classmethod
    def of(cls, head: Segment) -> Head:
        listed, has_state = json.loads(head.content)
        return cls(tuple((number, id_) for number, id_ in listed), has_state)


def name_of(name: str, number: int) -> str:
    return f"{name}-journal-{number:06}"


def to_document(segment: Segment, name: str, namespace: str, owner_reference: Document) -> Document:
    metadata: Document = {"name": name_of(name, segment.number), "namespace": namespace}
    metadata |= {"labels": {JOURNAL_LABEL: name}, "ownerReferences": [owner_reference]}
    if segment.version:
        metadata["resourceVersion"] = segment.version
    words = {"number": str(segment.number), "id": segment.id, "writer": segment.writer}
    content = {"content": base64.b64encode(segment.content).decode()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": words, "binaryData": content}


def from_document(document: Document) -> Segment:
    words, metadata = document["data"], document["metadata"]
    content = base64.b64decode(document.get("binaryData", {}).get("content", ""))
    number, version, uid = int(words["number"]), metadata["resourceVersion"], metadata["uid"]
    return Segment(number, words["id"], words["writer"], content, version, uid)


def choose(head: Segment, found: Iterable[Segment]) -> tuple[list[Segment], list[Segment]]:
    """The segments that the head names, in order; and those that are nobody's."""
    by_id = {segment.id: segment for segment in found if segment.number}
    named = Head.of(head).segments
    for number, id_ in named:
        if id_ not in by_id:
            raise JournalDamaged(f"segment {number} of the journal is missing: somebody deleted it")
    journal = [by_id.pop(id_) for _, id_ in named]
    return journal, list(by_id.values())


def frame(payload: bytes) -> bytes:
    return _LENGTH.pack(len(payload)) + payload


def records(journal: Iterable[Segment]) -> Iterator[bytes]:
    """Their records, oldest first. A large one may begin in one segment and end in another."""
    stream, at = b"".join(segment.content for segment in journal), 0
    while at < len(stream):
        (length,) = _LENGTH.unpack_from(stream, at)
        yield stream[at + _LENGTH.size : at + _LENGTH.size + length]
        at += _LENGTH.size + length


def pieces(stream: bytes) -> list[bytes]:
    return [stream[at : at + MOST_BYTES] for at in range(0, len(stream), MOST_BYTES)]
