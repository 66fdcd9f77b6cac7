"""Streams: an IterableDataset is read once for each logical rank, and any worker can take a stream over at any step.

Stream r is what the dataset yields if `torch.utils.data.get_worker_info()` says worker r of as many as there are
logical ranks: the contract by which iterable datasets shard themselves. Logical rank r takes the next records of
stream r in each step, so its position is a function of the step. A process that takes a stream over enters it with
the dataset's own state if one is known, else from the beginning of the epoch, and skips what was trained before.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import _utils as torch_loading

from elasticdl.errors import DataError, ElasticDLError
from elasticdl.worker.reading.loader_process import READING_KEY, preserve_random_state
from elasticdl.worker.training.numerics import seed_everything

_log = logging.getLogger(__name__)

_OPENING_KEY = 3  # the last part of the random key of opening a stream


class StreamPosition(NamedTuple):
    """The state of a stream before its records of `step`."""

    step: int
    state: Any


@dataclass(frozen=True)
class StreamLayout:
    """How the records of an iterable dataset are divided into streams. Equal layouts give equal streams."""

    dataset: Any
    count: int
    is_sharded: bool  # by the dataset itself; otherwise record i of the dataset is in stream i % count
    seed: int
    epoch_steps: int
    step_records: int  # of one stream
    lengths: tuple[int, ...] = ()  # of the streams, if they were counted

    def open_stream(self, rank: int, epoch: int, position: StreamPosition | None = None) -> Stream:
        """Stream `rank` of `epoch`, at its beginning or at `position`."""
        try:
            dataset = copy.deepcopy(self.dataset)
        except Exception as exc:
            raise DataError(
                f"the IterableDataset of join: each stream needs its own copy of {type(self.dataset).__name__}, and "
                f"copying failed: {type(exc).__name__}: {exc}; open files and connections in __iter__, not in __init__"
            ) from exc
        if callable(getattr(dataset, "set_epoch", None)):
            dataset.set_epoch(epoch)
        first = epoch * self.epoch_steps
        stream = Stream(self, dataset, rank, epoch, first if position is None else position.step)
        stream.begin(None if position is None else position.state)
        return stream

    @contextmanager
    def as_worker(self, rank: int, dataset: Any) -> Iterator[None]:
        """While it is open, `get_worker_info()` names the worker that reads stream `rank`."""
        number, count = (rank, self.count) if self.is_sharded else (0, 1)
        before = torch_loading.worker._worker_info
        torch_loading.worker._worker_info = torch_loading.worker.WorkerInfo(
            id=number, num_workers=count, seed=self.seed + number, dataset=dataset
        )
        try:
            yield
        finally:
            torch_loading.worker._worker_info = before


class Stream:
    """One stream that is being read; `step` is the step whose records come next."""

    def __init__(self, streams: StreamLayout, dataset: Any, rank: int, epoch: int, step: int) -> None:
        self._streams = streams
        self._dataset = dataset
        self._iterator: Iterator[Any] = iter(())
        self.rank = rank
        self.epoch = epoch
        self.step = step
        self.records = 0

    def begin(self, state: Any) -> None:
        streams = self._streams
        with streams.as_worker(self.rank, self._dataset):
            seed_everything(streams.seed, self.epoch, self.rank, _OPENING_KEY)
            if state is not None and _has_state(self._dataset):
                self._dataset.load_state_dict(state)
            self._iterator = iter(self._dataset)
            if state is not None and not _has_state(self._dataset):
                self._iterator.load_state_dict(state)  # type: ignore[attr-defined]
        self.records = (self.step - self.epoch * streams.epoch_steps) * streams.step_records

    def read(self, size: int) -> list[Any]:
        """The records of the next step: `size` of them, or fewer at the end of the stream."""
        with self._streams.as_worker(self.rank, self._dataset):
            seed_everything(self._streams.seed, self.step, self.rank, READING_KEY)
            try:
                items = list(islice(self._iterator if self._streams.is_sharded else self._iterate_own_records(), size))
            except ElasticDLError:
                raise
            except Exception as exc:
                raise DataError(
                    f"the IterableDataset of join, stream {self.rank} of {self._streams.count}, after {self.records} "
                    f"records of epoch {self.epoch}: {type(exc).__name__}: {exc}"
                ) from exc
        self.step += 1
        self.records += len(items)
        return items

    def state(self) -> Any:
        """The dataset's own state, from which the rest of the stream can be read; None if it has none."""
        if not has_exact_state(self._dataset):
            return None
        with self._streams.as_worker(self.rank, self._dataset):
            stateful: Any = self._dataset if _has_state(self._dataset) else self._iterator
            return stateful.state_dict() if _has_state(stateful) else None

    def _iterate_own_records(self) -> Iterator[Any]:
        """The records of this stream among all records of the dataset."""
        # The record read last belonged to this stream, so count - 1 records of others come before the next.
        others = self.rank if self.records == 0 else self._streams.count - 1
        while True:
            own = list(islice(self._iterator, others, others + 1))
            if not own:
                return
            yield own[0]
            others = self._streams.count - 1


def has_exact_state(dataset: Any) -> bool:
    """Whether the dataset's state, if it has one, leads to exactly the records that follow.

    Hugging Face's iterable datasets do not save the content of a shuffle buffer in their state. Datasets are
    duck-typed: torch has no class for those with a state, and `datasets` need not be installed.
    """
    layer = getattr(dataset, "_ex_iterable", None)
    while layer is not None:
        if hasattr(layer, "buffer_size"):
            return False
        layer = getattr(layer, "ex_iterable", None)
    return True


def open_streams(
    dataset: Any, count: int, seed: int, epoch_steps: int, step_records: int, lengths: tuple[int, ...] = ()
) -> StreamLayout:
    """The layout of a dataset's streams. Reads a few records to find out whether the dataset shards itself."""
    streams = StreamLayout(dataset, count, True, seed, epoch_steps, step_records, lengths)
    if count == 1:
        return streams
    with preserve_random_state():
        first, second = (streams.open_stream(rank, 0).read(2) for rank in (0, 1))
    if not first and not second:
        raise DataError("the IterableDataset of join: its first two streams have no records; expected at least one")
    if not _is_equal(first, second):
        return streams
    _log.warning(
        "the IterableDataset of join ignores torch.utils.data.get_worker_info(), so every stream would have all "
        "records: record i goes to logical rank i %% %d instead, and each worker reads them all. Shard the dataset by "
        "get_worker_info().id to read each record once", count,
    )  # fmt: skip
    return replace(streams, is_sharded=False)


def count_records(dataset: Any, streams: int, seed: int = 0) -> list[int]:
    """The length of each stream, by reading all of them: for `records_per_epoch` of `join`."""
    opened = open_streams(dataset, streams, seed, epoch_steps=1, step_records=1)
    lengths = []
    with preserve_random_state():
        for rank in range(streams):
            stream = opened.open_stream(rank, 0)
            while stream.read(1024):
                pass
            lengths.append(stream.records)
    return lengths


def _has_state(value: Any) -> bool:
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


def _is_equal(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if isinstance(left, np.ndarray):
        return np.array_equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_is_equal(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(_is_equal, left, right))
    return bool(left == right)
