"""A ps's part in a snapshot: rows are copied under the lock, and written while workers are served.

SNAPSHOT is answered when the copy is made. WRITE_SNAPSHOT names the directory and is sent again until the file is
written: the sender notices soon when this ps is gone, and no serving thread waits for the disk.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from elasticdl.checkpoint import staging
from elasticdl.checkpoint.manifest import FileEntry
from elasticdl.errors import CheckpointFailed, SpecError, StoreUnavailable
from elasticdl.ps.snapshots import chain, snapshot_files
from elasticdl.ps.snapshots.chain import PackedSlots
from elasticdl.ps.snapshots.snapshot_files import SnapshotRows
from elasticdl.ps.tables.applied_pushes import SlotMask, slot_mask
from elasticdl.ps.tables.row_store import RequestRefused
from elasticdl.ps.tables.state import PsState
from elasticdl.ps.wire.messages import MessageKind, PsMessage
from elasticdl.storage.names import FileName
from elasticdl.storage.paths import StorePath, parse_path
from elasticdl.storage.retrying import RETRY_S
from elasticdl.storage.scratch import scratch_directory

Body = TypeVar("Body", bound=BaseModel)

_MAX_UNWRITTEN = 2  # copies: one waits to be written while the next is made
_MAX_WRITTEN = 4  # written snapshots that are remembered
_FULL_SHARE = 0.5  # an increment with more of the rows: the next snapshot is full, and older files are not needed


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SnapshotRequest(_Body):
    """The text of SNAPSHOT."""

    snapshot_id: str
    base_id: str  # the snapshot it builds upon; "" for none
    number: int


class SnapshotReply(_Body):
    """The reply to SNAPSHOT."""

    pause_s: float  # how long pulls and pushes were blocked
    owned_slots: PackedSlots
    full_slots: PackedSlots
    rows: int
    applied_pushes: int


class WriteRequest(_Body):
    """The text of WRITE_SNAPSHOT, which is sent again until the reply has the size of the file."""

    snapshot_id: str
    directory: str  # or a prefix of an object store
    name: FileName
    retry_s: float = RETRY_S  # how long to retry while the store does not answer


class WriteReply(_Body):
    """The reply to WRITE_SNAPSHOT.

    Without bytes the file is not written yet or, with `is_known` false, this ps does not have the copy: another ps made
    it, or it was made too long ago.
    """

    is_known: bool = True
    bytes: int = 0
    sha256: str = ""
    unavailable: str = ""  # why the store does not accept it; this checkpoint is given up, the next may succeed


class _BaseSnapshot(NamedTuple):
    """A snapshot that a later one may build upon."""

    owned: SlotMask
    since: int  # changes after it are of this generation or later
    is_dense: bool  # most rows had changed: the next snapshot is full


class SnapshotWriter:
    """Copies and writes the rows of a ps. Every method may be called from any thread."""

    def __init__(self, ps_state: PsState) -> None:
        self._ps_state = ps_state
        self._lock = threading.Lock()  # guards everything below
        self._bases: dict[str, _BaseSnapshot] = {}  # oldest first
        self._copies: dict[str, SnapshotRows] = {}  # oldest first; until they are written or given up
        self._written: dict[str, Future[FileEntry]] = {}
        self._replies: dict[str, Future[SnapshotReply]] = {}  # the newest
        self._copier, self._writer = ThreadPoolExecutor(1, "ps-copier"), ThreadPoolExecutor(1, "ps-writer")

    @property
    def handlers(self) -> Mapping[MessageKind, Callable[[PsMessage], PsMessage | None]]:
        return {MessageKind.SNAPSHOT: self._reply_to_snapshot, MessageKind.WRITE_SNAPSHOT: self._reply_to_write}

    def set_restored(self, snapshot_id: str, slots: Sequence[int]) -> None:
        """Records that slots were restored from a snapshot, so that the next snapshot may build upon it.

        Call it before any worker uses the rows.
        """
        with self._lock:
            since = self._ps_state.begin_generation()
            base = self._bases.get(snapshot_id, _BaseSnapshot(slot_mask(()), since, is_dense=False))
            # A slot that was added later has the same generation or a newer one, so its changes are found, too.
            self._bases[snapshot_id] = base._replace(owned=base.owned | slot_mask(slots))

    def close(self) -> None:
        """Waits until everything is written."""
        self._copier.shutdown()
        self._writer.shutdown()

    def _reply_to_snapshot(self, message: PsMessage) -> PsMessage | None:
        """Copies in another thread: requests that the lock waits for may need the serving one."""
        request = _parse_body(SnapshotRequest, message)
        with self._lock:
            if request.snapshot_id not in self._replies:
                self._replies = {request.snapshot_id: self._copier.submit(self._take_snapshot, request)}
                self._written = dict(list(self._written.items())[-_MAX_WRITTEN:])
            future = self._replies[request.snapshot_id]
        return self._reply(message, future.result()) if future.done() else None

    def _take_snapshot(self, request: SnapshotRequest) -> SnapshotReply:
        base = self._bases.get(request.base_id)
        started = time.monotonic()
        with self._ps_state.exclusive():
            owned = self._ps_state.owned_slots
            owned_before = None if base is None or base.is_dense else base.owned
            full_slots = chain.choose_full_slots(owned, owned_before, request.number)
            changed_slots = owned & (1 - full_slots)
            copy, changed = snapshot_files.copy_rows(
                self._ps_state, full_slots, changed_slots, base.since if base else 0
            )
            since, applied_pushes = self._ps_state.begin_generation(), self._ps_state.push_count
        pause_s = time.monotonic() - started
        with self._lock:
            self._forget_before(request.base_id)
            self._bases[request.snapshot_id] = _BaseSnapshot(
                owned, since, self._is_dense(owned, changed_slots, changed)
            )
            self._copies = dict([*self._copies.items(), (request.snapshot_id, copy)][-_MAX_UNWRITTEN:])
        return SnapshotReply(
            pause_s=pause_s,
            owned_slots=chain.pack_slots(owned),
            full_slots=chain.pack_slots(full_slots),
            rows=copy.row_count,
            applied_pushes=applied_pushes,
        )

    def _reply_to_write(self, message: PsMessage) -> PsMessage:
        request = _parse_body(WriteRequest, message)
        if Path(request.name).name != request.name:
            raise RequestRefused(f"WRITE_SNAPSHOT: expected the name of a file. Received: {request.name}")
        with self._lock:
            if request.snapshot_id in self._copies:
                self._written[request.snapshot_id] = self._writer.submit(
                    _write_rows, request, self._copies.pop(request.snapshot_id)
                )
            future = self._written.get(request.snapshot_id)
        if future is None:
            return self._reply(message, WriteReply(is_known=False))
        if not future.done():
            return self._reply(message, WriteReply())
        try:
            entry = future.result()
        except (CheckpointFailed, SpecError) as exc:
            raise RequestRefused(str(exc)) from exc
        except StoreUnavailable as exc:
            return self._reply(message, WriteReply(unavailable=str(exc)))
        return self._reply(message, WriteReply(bytes=entry.bytes, sha256=entry.sha256))

    def _forget_before(self, base_id: str) -> None:
        """Forgets snapshots before the base of the newest: no later one builds upon them."""
        if base_id in self._bases:
            while next(iter(self._bases)) != base_id:
                del self._bases[next(iter(self._bases))]

    def _is_dense(self, owned: SlotMask, changed_slots: SlotMask, changed: int) -> bool:
        """Whether most rows of these slots are in the increment, given that rows are spread evenly over the slots."""
        rows: int = sum(table["rows"] for table in self._ps_state.status()["tables"].values())
        share = int(changed_slots.sum()) / max(1, int(owned.sum()))
        return changed > _FULL_SHARE * rows * share

    def _reply(self, message: PsMessage, text: _Body) -> PsMessage:
        version = self._ps_state.slot_map.version
        return PsMessage(MessageKind.REPLY, message.request, version, text=text.model_dump_json().encode())


def _write_rows(request: WriteRequest, copy: SnapshotRows) -> FileEntry:
    directory = parse_path(request.directory, request.retry_s)
    try:
        return snapshot_files.write_snapshot(directory, request.name, copy)
    except OSError as exc:
        path = scratch_directory() if isinstance(directory, StorePath) else directory
        raise staging.write_error(path / request.name, exc) from exc


def _parse_body(kind: type[Body], message: PsMessage) -> Body:
    try:
        return kind.model_validate_json(message.text)
    except ValidationError as exc:
        raise RequestRefused(f"{message.kind.name}: {exc}") from exc
