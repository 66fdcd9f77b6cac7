"""Takes a snapshot of all ps at once, for the writer of a checkpoint: first every ps copies its rows, later it writes
them.

A checkpoint links the files of the one it builds upon, so each directory is complete, and any of them may be removed.
It builds upon the one before the last, so that two checkpoints in a row share no file: if one is damaged, the other is
not.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from elasticdl.checkpoint import manifest, safetensors_file, staging
from elasticdl.checkpoint.manifest import FileEntry
from elasticdl.errors import CheckpointCorrupt, CheckpointFailed, SpecError, StoreUnavailable
from elasticdl.ps.fleet import FleetView
from elasticdl.ps.snapshots import snapshot_files
from elasticdl.ps.snapshots.chain import SnapshotChain, SnapshotFile, unpack_slots
from elasticdl.ps.snapshots.writer import SnapshotReply, SnapshotRequest, WriteReply, WriteRequest
from elasticdl.ps.wire.connections import PsConnections, PsRefused, PsUnreachable
from elasticdl.ps.wire.keys import CurveKeys
from elasticdl.ps.wire.messages import MessageKind, PsMessage
from elasticdl.retry import backoff_delays
from elasticdl.spec import PsId
from elasticdl.storage.paths import AnyPath, StorePath, list_files

_MIN_POLL_S, _MAX_POLL_S = 0.01, 0.25  # between two requests


class StartedSnapshot(NamedTuple):
    """A snapshot whose rows every ps has copied; nothing is on the disk yet."""

    snapshot_id: str
    base_id: str  # the snapshot it builds upon; "" for none
    step: int
    replies: Mapping[PsId, SnapshotReply]
    addresses: Mapping[PsId, str]

    @property
    def pause_s(self) -> float:
        """The longest time that any ps did not serve requests."""
        return max(reply.pause_s for reply in self.replies.values())

    @property
    def row_count(self) -> int:
        return sum(reply.rows for reply in self.replies.values())


class SnapshotCoordinator:
    """Takes snapshots, from `open` until `close`, or inside of `with`.

    For two threads: one begins snapshots, the other finishes them. Neither waits for the other.
    """

    def __init__(
        self, fleet: Callable[[], FleetView], token: str, timeout_s: float, keys: CurveKeys | None = None
    ) -> None:
        self._fleet = fleet
        self._copying = PsConnections({}, token, timeout_s, keys)
        self._writing = PsConnections({}, token, timeout_s, keys)

    def open(self) -> Self:
        self._copying.open()
        self._writing.open()
        return self

    def close(self) -> None:
        self._copying.close()
        self._writing.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def update_fleet(self, fleet: FleetView) -> None:
        """Takes over a newer fleet, so that no call waits for a lost ps. For any thread, until `close`."""
        self._copying.mark_lost(fleet.lost)
        self._writing.mark_lost(fleet.lost)

    def begin(self, step: int, base: AnyPath | None) -> StartedSnapshot:
        """Makes every ps copy the rows that changed since the checkpoint `base`, or all rows without a usable base.

        No pushes may be under way. While slots move, a copy could miss some or have them twice: then all ps copy
        again. Raises PsUnreachable, PsRefused.
        """
        base_chain = _read_base_chain(base)
        deadline = time.monotonic() + self._copying.timeout_s
        for pause_s in backoff_delays(_MIN_POLL_S, _MAX_POLL_S, jitter=0.0):
            snapshot_id = secrets.token_hex(8)
            base_id = base_chain.snapshot_id if base_chain else ""
            request = SnapshotRequest(snapshot_id=snapshot_id, base_id=base_id, number=_next_number(base_chain))
            addresses = _owner_addresses(self._fleet())
            message = PsMessage(MessageKind.SNAPSHOT, 0, text=request.model_dump_json().encode())
            replies = _request_all(self._copying, addresses, dict.fromkeys(addresses, message))
            snapshots = {name: SnapshotReply.model_validate_json(reply.text) for name, reply in replies.items()}
            if _have_each_slot_once(snapshots):
                return StartedSnapshot(snapshot_id, base_id, step, snapshots, addresses)
            if time.monotonic() > deadline:
                raise PsUnreachable(f"slots kept moving for {self._copying.timeout_s:g} s: no snapshot has all of them")
            time.sleep(pause_s)
        raise AssertionError("delays have no end")

    def finish(
        self, snapshot: StartedSnapshot, staging_directory: Path, base: AnyPath | None, target: AnyPath
    ) -> dict[str, FileEntry]:
        """Makes every ps write its copy into `staging_directory`; returns the entries of the manifest.

        `target` is where the staging directory will be moved. If it is in a store, every ps uploads its own files to
        it. `base` is the checkpoint that `begin` was called with, or one that was built upon it since.
        Raises CheckpointFailed, PsUnreachable.
        """
        base_chain = _read_base_chain(base)
        if snapshot.base_id and (
            base_chain is None or snapshot.base_id not in (base_chain.snapshot_id, *base_chain.base_ids)
        ):
            raise CheckpointFailed(f"step {snapshot.step}: {base} is not built upon the base of this snapshot")
        directory = staging_directory / snapshot_files.PS_DIRECTORY
        directory.mkdir()
        number = _next_number(base_chain)
        files = tuple(
            SnapshotFile(
                name=f"{name}-{number}.safetensors",
                ps=name,
                number=number,
                step=snapshot.step,
                **reply.model_dump(exclude={"pause_s"}),
            )
            for name, reply in snapshot.replies.items()
        )
        chain = SnapshotChain.extend(base_chain, snapshot.snapshot_id, snapshot.step, files)
        written_to = target / snapshot_files.PS_DIRECTORY if isinstance(target, StorePath) else directory
        entries = self._wait_until_written(snapshot, written_to, files)
        if base is not None and base_chain is not None:
            base_files = manifest.read_manifest(base / manifest.MANIFEST_FILE).files
            for old in chain.files[: -len(files)]:
                _link_file(base / snapshot_files.PS_DIRECTORY / old.name, written_to / old.name)
                entries[old.name] = base_files[f"{snapshot_files.PS_DIRECTORY}/{old.name}"]
        entries[Path(snapshot_files.INDEX_FILE).name] = safetensors_file.write_bytes(
            staging_directory / snapshot_files.INDEX_FILE, chain.model_dump_json(indent=1).encode()
        )
        staging.sync_directory(directory)
        return {f"{snapshot_files.PS_DIRECTORY}/{name}": entry for name, entry in entries.items()}

    def _wait_until_written(
        self, snapshot: StartedSnapshot, directory: AnyPath, files: tuple[SnapshotFile, ...]
    ) -> dict[str, FileEntry]:
        """Sends the request until all ps have written their files; returns the entries of the manifest."""
        waiting, entries = {file.ps: file.name for file in files}, dict[str, FileEntry]()
        for pause_s in backoff_delays(_MIN_POLL_S, _MAX_POLL_S, jitter=0.0):
            requests = {
                ps: PsMessage(
                    MessageKind.WRITE_SNAPSHOT,
                    0,
                    text=_write_request(snapshot, directory, name).model_dump_json().encode(),
                )
                for ps, name in waiting.items()
            }
            try:
                replies = _request_all(self._writing, snapshot.addresses, requests)
            except PsRefused as exc:
                raise CheckpointFailed(str(exc)) from exc
            for name, reply in replies.items():
                write_reply = WriteReply.model_validate_json(reply.text)
                if not write_reply.is_known:
                    raise PsUnreachable(f"{name}: it no longer has its copy for this snapshot")
                if write_reply.unavailable:
                    raise StoreUnavailable(f"{name}: {write_reply.unavailable}")
                if write_reply.bytes:
                    entries[waiting.pop(name)] = FileEntry(write_reply.bytes, write_reply.sha256)
            if not waiting:
                return entries
            time.sleep(pause_s)
        raise AssertionError("delays have no end")


def choose_base(directory: AnyPath, keep: int, *, is_another_under_way: bool) -> AnyPath | None:
    """Chooses the complete checkpoint that the next snapshot builds upon. None: the next snapshot is a full one.

    It is the newest checkpoint that shares no file with the predecessor of the next one. The predecessor is the newest
    checkpoint or, with `is_another_under_way`, the one that is being written, which does not build upon the newest. If
    only one checkpoint is kept, each builds upon the one before.
    """
    checkpoints = manifest.list_checkpoints(directory)
    if not checkpoints:
        return None
    newest, *older = checkpoints
    if is_another_under_way or keep == 1:
        return newest
    lineage = _lineage(newest)
    return next((checkpoint for checkpoint in older if lineage.isdisjoint(_lineage(checkpoint))), None)


def find_base(directory: AnyPath, snapshot: StartedSnapshot) -> AnyPath | None:
    """Finds the checkpoint that has the base of `snapshot`: its own, or one that was built upon it since."""
    if not snapshot.base_id:
        return None
    checkpoints = manifest.list_checkpoints(directory)
    return next((checkpoint for checkpoint in checkpoints if snapshot.base_id in _lineage(checkpoint)), None)


def _lineage(checkpoint: AnyPath) -> set[str]:
    """Returns the ids of a checkpoint's snapshot and of those it builds upon; none if it is damaged."""
    try:
        chain = snapshot_files.read_chain(checkpoint)
    except (CheckpointCorrupt, SpecError):
        return set()
    return {chain.snapshot_id, *chain.base_ids}


def _owner_addresses(fleet: FleetView) -> dict[PsId, str]:
    """The addresses of all owners of slots."""
    for name in fleet.slot_map.members:
        if name in fleet.lost or name not in fleet.addresses:
            raise PsUnreachable(f"{name} is lost: no snapshot without its slots")
    return {name: fleet.addresses[name] for name in fleet.slot_map.members}


def _request_all(
    connections: PsConnections, addresses: Mapping[PsId, str], messages: Mapping[PsId, PsMessage]
) -> dict[PsId, PsMessage]:
    for name in messages:
        connections.connect(name, addresses[name])
    return connections.request_all(messages)


def _read_base_chain(base: AnyPath | None) -> SnapshotChain | None:
    """Reads the chain of `base`. None: it has no snapshot, or a file has another length than in the manifest."""
    if base is None:
        return None
    try:
        chain, expected = snapshot_files.read_chain(base), manifest.read_manifest(base / manifest.MANIFEST_FILE).files
        sizes = list_files(base)
    except (CheckpointCorrupt, SpecError):
        return None
    for file in chain.files:
        name = f"{snapshot_files.PS_DIRECTORY}/{file.name}"
        if name not in expected or sizes.get(name) != expected[name].bytes:
            return None
    return chain


def _have_each_slot_once(replies: Mapping[PsId, SnapshotReply]) -> bool:
    owners = np.sum([unpack_slots(reply.owned_slots) for reply in replies.values()], axis=0, dtype=np.int64)
    return bool((owners == 1).all())


def _next_number(base: SnapshotChain | None) -> int:
    return base.number + 1 if base else 1


def _write_request(snapshot: StartedSnapshot, directory: AnyPath, name: str) -> WriteRequest:
    if isinstance(directory, StorePath):
        return WriteRequest(
            snapshot_id=snapshot.snapshot_id, directory=str(directory), name=name, retry_s=directory.retry_s
        )
    return WriteRequest(snapshot_id=snapshot.snapshot_id, directory=str(directory.absolute()), name=name)


def _link_file(source: AnyPath, target: AnyPath) -> None:
    if isinstance(source, StorePath) and isinstance(target, StorePath):
        if source != target:  # a checkpoint of the same step is being replaced
            source.copy_to(target)
        return
    assert isinstance(source, Path) and isinstance(target, Path), "checkpoints of a job lie in one place"
    try:
        os.link(source, target)
    except OSError:  # a file system without links
        shutil.copyfile(source, target)
        with target.open("rb") as copied:
            os.fsync(copied.fileno())
