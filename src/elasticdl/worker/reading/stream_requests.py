"""Plans what each logical rank reads of its streams step by step, and where streams can be resumed.

Workers share these positions.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from safetensors.torch import load, save

from elasticdl import watchdog
from elasticdl.checkpoint import values
from elasticdl.checkpoint.tensors import DTYPES
from elasticdl.collective.group import Group
from elasticdl.collective.tree import RankRange
from elasticdl.data.plan import TrainingPlan
from elasticdl.errors import CheckpointFailed
from elasticdl.worker.reading.loader_process import LoadedBatch, collate_items
from elasticdl.worker.reading.streams import Stream, StreamLayout, StreamPosition

_log = logging.getLogger(__name__)

_SLOW_SKIP_S = 5.0


class StreamRequest(NamedTuple):
    step: int
    rank: int
    size: int  # records, at most
    position: StreamPosition | None  # where the stream may be entered, if this process does not have it open


class StreamFetcher:
    """Reads streams in a loader process, and keeps them open."""

    def __init__(self, streams: StreamLayout, collate: Callable[[list[Any]], Any]) -> None:
        self._streams = streams
        self._collate = collate
        self._open: dict[int, Stream] = {}
        self._reported: set[int] = set()

    def __getitems__(self, request: StreamRequest) -> LoadedBatch:
        stream = self._open_at(request)
        items = stream.read(request.size)
        batch, where = None, f"the IterableDataset of join, stream {request.rank}, step {request.step}"
        if items:
            batch = collate_items(self._collate, items, where)
        state = stream.state()
        self._check_end(stream, request, len(items))
        return LoadedBatch(request.step, request.rank, batch, 0 if batch is None else len(items), state)

    def _open_at(self, request: StreamRequest) -> Stream:
        streams, epoch = self._streams, request.step // self._streams.epoch_steps
        stream = self._open.get(request.rank)
        is_behind = stream is not None and request.position is not None and stream.step < request.position.step
        if stream is None or stream.epoch != epoch or stream.step > request.step or is_behind:
            stream = self._open[request.rank] = streams.open_stream(request.rank, epoch, request.position)
        began, skipped = time.monotonic(), stream.records
        while stream.step < request.step:
            stream.read(streams.step_records)
        seconds = time.monotonic() - began
        if seconds > _SLOW_SKIP_S:
            _log.warning(
                "stream %d: skipped %d records in %.0f s to enter it at step %d; a dataset with state_dict and "
                "load_state_dict is entered at once", request.rank, stream.records - skipped, seconds, request.step,
            )  # fmt: skip
        return stream

    def _check_end(self, stream: Stream, request: StreamRequest, received: int) -> None:
        """At the end of an epoch, report a stream that is not as long as planned, once."""
        streams, rank, records = self._streams, request.rank, stream.records
        if (request.step + 1) % streams.epoch_steps or rank in self._reported:
            return
        planned = streams.lengths[rank] if streams.lengths else records
        if received == request.size and stream.read(1):
            self._reported.add(rank)
            _log.warning(
                "stream %d of %d goes on after the %d records it has in epoch %d, and the rest is left out: give "
                "records_per_epoch the length of each stream, as elasticdl.torch.count_records gives it",
                rank, streams.count, records, stream.epoch,
            )  # fmt: skip
        elif records != planned or (received == 0 and not streams.lengths):
            self._reported.add(rank)
            _log.warning(
                "stream %d of %d ended after %d records of epoch %d, earlier than records_per_epoch says: its logical "
                "rank had none in the last steps; correct records_per_epoch, or give the dataset as many shards as "
                "there are logical ranks", rank, streams.count, records, stream.epoch,
            )  # fmt: skip


class StreamRequests:
    """Requests the records of each logical rank's stream, and collects where streams can be entered."""

    def __init__(self, streams: StreamLayout, plan: TrainingPlan, collate: Callable[[list[Any]], Any]) -> None:
        self.fetcher = StreamFetcher(streams, collate)
        self.positions = StreamPositions(plan.steps_per_epoch)
        self._plan = plan

    def count_lanes(self, num_workers: int) -> int:
        """A stream is open in one process, so each process has its own logical ranks."""
        return max(1, min(num_workers, self._plan.logical_ranks))

    def make_request(self, step: int, rank: int) -> StreamRequest | None:
        size = len(self._plan.rank_slice(step, rank))
        return StreamRequest(step, rank, size, self.positions.find_newest(rank, step)) if size else None

    def on_loaded(self, delivery: LoadedBatch) -> None:
        # The state at the end of an epoch leads to no record of the next.
        if delivery.state is not None and (delivery.step + 1) % self._plan.steps_per_epoch:
            self.positions.add(delivery.rank, StreamPosition(delivery.step + 1, delivery.state))

    def while_waiting(self) -> AbstractContextManager[None]:
        return watchdog.pause_watchdog("waits for records of a stream")  # which may take any time


class StreamPositions:
    """The positions where streams can be entered, from this worker's reading and from other workers. Plain values."""

    def __init__(self, epoch_steps: int) -> None:
        self._epoch_steps = epoch_steps
        self._positions: dict[int, list[StreamPosition]] = {}
        self._is_warned = False

    def add(self, rank: int, position: StreamPosition) -> None:
        # Two are kept: a step whose round broke is computed again, from before its records.
        self._positions[rank] = [*self._positions.get(rank, [])[-1:], position]

    def find_newest(self, rank: int, step: int) -> StreamPosition | None:
        """The newest position in the epoch of `step` that is not behind it."""
        epoch = step // self._epoch_steps
        reachable = [
            position
            for position in self._positions.get(rank, [])
            if position.step <= step and position.step // self._epoch_steps == epoch
        ]
        return max(reachable, key=lambda position: position.step, default=None)

    def state_dict(self, ranks: Iterable[int] | None = None) -> dict[str, Any]:
        """The positions of `ranks`, or of all; without states that no checkpoint can hold."""
        chosen_ranks = self._positions.keys() if ranks is None else ranks
        state = {
            str(rank): [list(position) for position in self._positions.get(rank, []) if self._can_keep(position)]
            for rank in chosen_ranks
        }
        return {rank: positions for rank, positions in state.items() if positions}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Add positions of another worker or a checkpoint; of each stream the newest two are kept."""
        for rank, added in state.items():
            by_step = {position.step: position for position in self._positions.get(int(rank), [])}
            by_step |= {int(step): StreamPosition(int(step), stream_state) for step, stream_state in added}
            self._positions[int(rank)] = [by_step[step] for step in sorted(by_step)[-2:]]

    def _can_keep(self, position: StreamPosition) -> bool:
        tensors: dict[str, torch.Tensor] = {}
        try:
            values.pack_value(position.state, "the state", tensors)
        except CheckpointFailed as exc:
            if not self._is_warned:
                _log.warning("the state_dict() of the IterableDataset stays in its worker, others read on: %s", exc)
                self._is_warned = True
            return False
        return all(tensor.dtype in DTYPES for tensor in tensors.values())


SHARE_EVERY_STEPS = 100  # another worker reads what a killed worker has read since then again
_TEXT_KEY = "text"


def share_stream_positions(positions: StreamPositions, share: RankRange, group: Group) -> None:
    """Let every member know where all streams stand. All members call it at the same step."""
    if group.size == 1:
        return
    own = _encode_positions(positions.state_dict(range(share.first, share.stop)))
    lengths = torch.empty(group.size, dtype=torch.int64)
    group.allgather(lengths, torch.tensor([len(own)]))
    longest = int(lengths.max())
    if not longest:
        return
    part = torch.zeros(longest, dtype=torch.uint8)
    part[: len(own)] = torch.frombuffer(bytearray(own), dtype=torch.uint8) if own else part[:0]
    everyone = torch.empty(group.size * longest, dtype=torch.uint8)
    group.allgather(everyone, part)
    for rank, (length, row) in enumerate(zip(lengths.tolist(), everyone.view(group.size, longest), strict=True)):
        if length and rank != group.rank:
            positions.load_state_dict(_decode_positions(row[:length].numpy().tobytes()))


def _encode_positions(state: dict[str, Any]) -> bytes:
    """The state as bytes; empty if there is none."""
    if not state:
        return b""
    tensors: dict[str, torch.Tensor] = {}
    text = json.dumps(values.pack_value(state, "state", tensors))
    return save({**tensors, _TEXT_KEY: torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)})


def _decode_positions(content: bytes) -> Any:
    tensors = load(content)
    return values.unpack_value(json.loads(tensors.pop(_TEXT_KEY).numpy().tobytes()), tensors)
