"""Makes a feed of the data that `join` is given: a map-style dataset, a DataLoader or an IterableDataset.

A DataLoader is read in the order its sampler draws.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
)

from elasticdl.data.bad_records import BadRecords
from elasticdl.data.collate import collate
from elasticdl.data.interface import Indices, RecordSource
from elasticdl.data.plan import TrainingPlan
from elasticdl.data.readers import mapped
from elasticdl.data.readers.mapped import MapDataset
from elasticdl.errors import SpecError
from elasticdl.model import tensors
from elasticdl.worker.reading.loader import ItemRequests, LoaderFeed, LoaderOptions
from elasticdl.worker.reading.loader_process import ItemFetcher, TensorFetcher, preserve_random_state
from elasticdl.worker.reading.stream_requests import StreamRequests
from elasticdl.worker.reading.streams import open_streams
from elasticdl.worker.training.numerics import seed_everything

_log = logging.getLogger(__name__)

Data = MapDataset | DataLoader[Any] | IterableDataset[Any]


@dataclass(frozen=True)
class JoinedData:
    """The data of `join` and how it is read, whatever kind of object it was.

    Datasets and samplers are duck-typed, as torch does: no base class is required.
    """

    dataset: Any
    collate: Callable[[list[Any]], Any]
    options: LoaderOptions
    batch_size: int | None
    shuffle: bool
    drop_last: bool
    sampler: Any = None  # draws the order of each epoch; None: the plan does

    @property
    def is_stream(self) -> bool:
        if isinstance(self.dataset, IterableDataset):
            return True
        has_numbers = hasattr(self.dataset, "__getitem__") or isinstance(self.dataset, RecordSource)
        return hasattr(self.dataset, "__iter__") and not has_numbers


def collate_records(items: list[Any]) -> Any:
    """Tensors of the items of a plain dataset: dicts by key, tuples by position; Python floats become float32."""
    return tensors.to_tensors(collate(items, tensors.stack_values, "the dataset of join: its item"))


def describe_data(
    data: Data,
    *,
    shuffle: bool | None = None,
    drop_last: bool | None = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    num_workers: int | None = None,
    pin_memory: bool | None = None,
) -> JoinedData:
    """Describe the data of `join`. Arguments that a DataLoader decides itself are refused with one."""
    if isinstance(data, DataLoader):
        arguments = {"shuffle": shuffle, "drop_last": drop_last, "collate_fn": collate_fn, "num_workers": num_workers}
        for name, value in {**arguments, "pin_memory": pin_memory}.items():
            if value is not None:
                raise SpecError(f"join: {name} is the DataLoader's; set it there, and leave it out of join")
        return _describe_loader(data)
    reading = JoinedData(
        data,
        collate_fn or collate_records,
        LoaderOptions(num_workers=num_workers or 0, pin_memory=bool(pin_memory)),
        batch_size=None,
        shuffle=True if shuffle is None else shuffle,
        drop_last=bool(drop_last),
    )
    if reading.is_stream and shuffle:
        raise SpecError("join: shuffle=True, but an IterableDataset has its own order; shuffle inside the dataset")
    return reading


def _describe_loader(loader: DataLoader[Any]) -> JoinedData:
    options = LoaderOptions(
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory,
        prefetch_factor=loader.prefetch_factor,
        timeout_s=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
    )
    reading = JoinedData(loader.dataset, loader.collate_fn, options, loader.batch_size, False, loader.drop_last)
    if loader.batch_size is None and loader.batch_sampler is None:
        raise SpecError(
            "join: the DataLoader has batch_size=None, so its dataset gives whole batches, whose records cannot be "
            "counted; let the dataset give single records, and the DataLoader batch_size=N"
        )
    if reading.is_stream:
        return reading
    if loader.batch_size is None:
        batches = FlattenedBatchSampler(loader.batch_sampler)
        return replace(reading, batch_size=batches.batch_size, sampler=batches)
    sampler: Any = loader.sampler
    if isinstance(sampler, DistributedSampler):
        _log.warning(
            "join: DistributedSampler is replaced by the plan, which divides each batch among the workers; records are "
            "neither repeated nor left out to make parts even. You may leave the sampler out of the DataLoader"
        )
        return replace(reading, shuffle=sampler.shuffle)
    if type(sampler) is SequentialSampler:
        return reading
    if type(sampler) is RandomSampler and not sampler.replacement and sampler._num_samples is None:
        return replace(reading, shuffle=True)  # a permutation of all items, which the plan computes in constant memory
    return replace(reading, sampler=sampler)


@dataclass(frozen=True)
class DataPlan:
    """The arguments of `join` that the plan of its data is made from."""

    logical_ranks: int
    global_batch_size: int | None = None
    epochs: int = 1
    seed: int = 0
    max_steps: int = 0
    records_per_epoch: int | Sequence[int] | None = None

    def batch_size(self, reading: JoinedData) -> int:
        """The records of one step in all workers together."""
        batch = self.global_batch_size or reading.batch_size
        if batch is None:
            raise SpecError("join: give global_batch_size, the records of one step in all workers together")
        if batch < self.logical_ranks:
            name = "global_batch_size" if self.global_batch_size else "the DataLoader's batch_size"
            raise SpecError(f"join: {name}={batch} is smaller than the {self.logical_ranks} logical ranks")
        return batch

    def make_plan(self, reading: JoinedData, records: int, *, shuffle: bool) -> TrainingPlan:
        return TrainingPlan(
            records=records,
            shuffle=shuffle,
            global_batch=self.batch_size(reading),
            logical_ranks=self.logical_ranks,
            epochs=self.epochs,
            seed=self.seed,
            drop_last=reading.drop_last,
            max_steps=self.max_steps,
        )


def open_data(
    reading: JoinedData,
    data_plan: DataPlan,
    *,
    device: torch.device,
    max_workers: int,
    in_job: bool,
    bad_records: BadRecords,
) -> LoaderFeed:
    """The feed of `reading`, with its plan; nothing is started."""
    data_plan.batch_size(reading)  # refuses a wrong size before anything is read
    slices = -(-data_plan.logical_ranks // max_workers)
    options = replace(reading.options, ignores_terminate=in_job, step_slices=slices)
    if reading.is_stream:
        return _open_streams(reading, data_plan, options, device)
    if data_plan.records_per_epoch is not None:
        raise SpecError(
            "join: records_per_epoch is for streams; a dataset with a length, or its sampler, knows its own"
        )
    seed = data_plan.seed
    source = mapped.as_source(reading.dataset, "the dataset of join")
    order = None if reading.sampler is None else SampledOrder.from_sampler(reading.sampler, seed, len(source))
    records = len(source) if order is None else order.records
    plan = data_plan.make_plan(reading, records, shuffle=reading.shuffle)
    fetcher = make_tensor_fetcher(reading) or ItemFetcher(source, reading.collate, seed, bad_records.limit > 0)
    requests = ItemRequests(fetcher, plan, order, bad_records)
    return LoaderFeed(requests, plan, options, device)


def _open_streams(reading: JoinedData, data_plan: DataPlan, options: LoaderOptions, device: torch.device) -> LoaderFeed:
    batch, count = data_plan.batch_size(reading), data_plan.logical_ranks
    step_records, lengths = _stream_records(batch, count), _stream_lengths(data_plan.records_per_epoch, count)
    if lengths:
        steps = min(lengths) // step_records if reading.drop_last else -(-max(lengths) // step_records)
        records = steps * batch
    else:
        records = _count_stream_records(reading.dataset, data_plan.records_per_epoch)
    plan = data_plan.make_plan(reading, records, shuffle=False)
    streams = open_streams(reading.dataset, count, data_plan.seed, plan.steps_per_epoch, step_records, lengths)
    return LoaderFeed(StreamRequests(streams, plan, reading.collate), plan, options, device)


def make_tensor_fetcher(reading: JoinedData) -> TensorFetcher | None:
    """Reads many rows of a TensorDataset at once; None if that differs from stacking its items."""
    if type(reading.dataset) is not TensorDataset or reading.collate not in (collate_records, default_collate):
        return None
    tensors = reading.dataset.tensors
    if not all(type(t) is torch.Tensor and t.device.type == "cpu" and t.is_contiguous() for t in tensors):
        return None
    if any(tensor.requires_grad or tensor.is_sparse or tensor.is_quantized for tensor in tensors):
        return None
    return TensorFetcher(tensors, tuple if reading.collate is collate_records else list)


def _stream_records(batch: int, streams: int) -> int:
    if batch % streams:
        raise SpecError(
            f"join: a global batch of {batch} records is not divisible by {streams} logical ranks, each of which takes "
            f"the same number from its stream; use {batch - batch % streams} or {batch + streams - batch % streams}"
        )
    return batch // streams


def _stream_lengths(records_per_epoch: int | Sequence[int] | None, streams: int) -> tuple[int, ...]:
    """The length of each stream; empty if only the sum is known."""
    if records_per_epoch is None or isinstance(records_per_epoch, int):
        return ()
    lengths = tuple(int(length) for length in records_per_epoch)
    if len(lengths) != streams or min(lengths) < 0 or not any(lengths):
        raise SpecError(
            f"join: records_per_epoch={list(lengths)} must have the length of each of the {streams} streams, one for "
            "each logical rank"
        )
    return lengths


def _count_stream_records(dataset: Any, records_per_epoch: Any) -> int:
    if records_per_epoch is not None:
        if records_per_epoch < 1:
            raise SpecError(f"join: records_per_epoch must be 1 or more, got {records_per_epoch}")
        return int(records_per_epoch)
    try:
        return len(dataset)
    except (TypeError, NotImplementedError) as exc:
        raise SpecError(
            "join: an IterableDataset without a length needs records_per_epoch=N, the records of all streams together, "
            "or the length of each: records_per_epoch=elasticdl.torch.count_records(dataset, streams=logical_ranks)"
        ) from exc


_SAMPLING_KEY = 4  # the last part of the random key of drawing an epoch's order


class FlattenedBatchSampler:
    """A user's batch sampler as a sampler: its batches one after the other, all of one size."""

    def __init__(self, batches: Any) -> None:
        self._batches = batches
        with preserve_random_state():
            self.batch_size = len(next(iter(batches)))

    def set_epoch(self, epoch: int) -> None:
        for sampler in (self._batches, getattr(self._batches, "sampler", None)):
            if sampler is not None and hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)

    @property
    def generator(self) -> Any:
        sampler = getattr(self._batches, "sampler", None)
        return getattr(self._batches, "generator", None) or getattr(sampler, "generator", None)

    def __iter__(self) -> Any:
        sizes = []
        for batch in self._batches:
            sizes.append(len(batch))
            yield from batch
        if any(size != self.batch_size for size in sizes[:-1]) or sizes[-1] > self.batch_size:
            raise SpecError(
                f"join: the DataLoader's batch_sampler gives batches of {min(sizes)} to {max(sizes)} items; a step "
                "trains a fixed number: give the DataLoader batch_size and sampler instead of batch_sampler"
            )


@dataclass(frozen=True)
class SampledOrder:
    """The order of each epoch as the user's sampler draws it: a function of (seed, epoch), equal in all workers."""

    sampler: Any
    seed: int
    records: int  # of an epoch
    items: int  # of the dataset

    @classmethod
    def from_sampler(cls, sampler: Any, seed: int, items: int) -> SampledOrder:
        first = draw_order(sampler, seed, 0, items)
        if not np.array_equal(first, draw_order(sampler, seed, 0, items)):
            raise SpecError(
                f"join: {type(sampler).__name__} gave two different orders for the same epoch, so workers would "
                "disagree; draw from torch's, NumPy's or Python's global random numbers, from a torch.Generator in its "
                "attribute `generator`, or from the epoch that set_epoch(epoch) tells"
            )
        return cls(sampler, seed, len(first), items)

    def __call__(self, epoch: int) -> Indices:
        return _cached_order(self, epoch)


@lru_cache(maxsize=2)  # reading ahead may be in the next epoch already
def _cached_order(order: SampledOrder, epoch: int) -> Indices:
    indices = draw_order(order.sampler, order.seed, epoch, order.items)
    if len(indices) != order.records:
        raise SpecError(
            f"join: {type(order.sampler).__name__} gave {order.records} items in epoch 0 and {len(indices)} in epoch "
            f"{epoch}; every epoch must have the same number"
        )
    return indices


def draw_order(sampler: Any, seed: int, epoch: int, items: int) -> Indices:
    """The order that `sampler` draws for `epoch`, with random numbers fixed by (seed, epoch)."""
    with preserve_random_state():
        seed_everything(seed, epoch, _SAMPLING_KEY)
        generator = getattr(sampler, "generator", None)
        if isinstance(generator, torch.Generator):
            generator.manual_seed(torch.initial_seed())
        if callable(getattr(sampler, "set_epoch", None)):
            sampler.set_epoch(epoch)
        indices = np.fromiter((int(index) for index in sampler), dtype=np.int64)
    if not len(indices) or indices.min() < 0 or indices.max() >= items:
        which = f"{indices.min()} … {indices.max()}" if len(indices) else "none"
        raise SpecError(f"join: {type(sampler).__name__} must give numbers of items, 0 … {items - 1}; it gave {which}")
    return indices
