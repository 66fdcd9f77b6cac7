"""Reads the batches of a user's dataset ahead by DataLoaders of torch, in the order of the plan.

torch provides worker processes, pinning and the propagation of errors. ElasticDL provides the order: the batch sampler
of a DataLoader yields one request for each (step, logical rank), for as long as the training lasts. When the share of
this worker changes, the sampler goes on with the requests of the new share; batches that were read ahead and are still
needed are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import torch
from torch.utils.data import DataLoader

from elasticdl import watchdog
from elasticdl.collective.tree import RankRange
from elasticdl.data.bad_records import BadRecords
from elasticdl.data.dataset import Batch, CollatedBatch
from elasticdl.data.interface import Indices
from elasticdl.data.plan import TrainingPlan
from elasticdl.worker.reading.loader_process import (
    ItemRequest,
    LoadedBatch,
    LoaderProcessSetup,
    pass_through,
    preserve_random_state,
)
from elasticdl.worker.training.numerics import seed_everything

StepAndRank: TypeAlias = tuple[int, int]
"""Step and logical rank."""


@dataclass(frozen=True)
class LoaderOptions:
    """The options of a DataLoader, with the names of torch."""

    num_workers: int = 0
    pin_memory: bool = False
    prefetch_factor: int | None = None  # batches of this worker, of `step_slices` slices each
    step_slices: int = 1  # logical ranks this worker computes when the job has all its workers
    timeout_s: float = 0.0
    worker_init_fn: Callable[[int], None] | None = None
    multiprocessing_context: Any = None
    ignores_terminate: bool = False  # whether loader processes outlive SIGTERM, until their worker ends


class LoaderRequests(Protocol):
    """Says what a logical rank reads in a step."""

    @property
    def fetcher(self) -> Any:
        """Turns a request into a LoadedBatch, in a loader process. Its state may be bound to that process."""

    def count_lanes(self, num_workers: int) -> int:
        """The number of independent lanes of reading: rank r belongs to lane r % lanes."""

    def make_request(self, step: int, rank: int) -> Any | None:
        """The request of a slice; None if it is empty."""

    def on_loaded(self, delivery: LoadedBatch) -> None:
        """The training loop has received the delivery."""

    def while_waiting(self) -> AbstractContextManager[None]:
        """A context for waiting for a delivery: tells the watchdog of progress why the training loop waits."""


@dataclass(frozen=True)
class ItemRequests:
    """Items of a map-style dataset, at the plan's positions of the order of each epoch."""

    fetcher: Any
    plan: TrainingPlan
    order: Callable[[int], Indices] | None  # of an epoch, if the user's sampler draws it
    bad_records: BadRecords = field(default_factory=BadRecords)

    def count_lanes(self, num_workers: int) -> int:
        return 1  # any process reads any item

    def make_request(self, step: int, rank: int) -> ItemRequest | None:
        indices = self.plan.rank_slice(step, rank)
        if not len(indices):
            return None
        return ItemRequest(step, rank, indices if self.order is None else self.order(self.plan.epoch_of(step))[indices])

    def on_loaded(self, delivery: LoadedBatch) -> None:
        """Report the items that were skipped."""
        for number, reason in delivery.bad:
            self.bad_records.add("the dataset of join", number, reason)

    def while_waiting(self) -> AbstractContextManager[None]:
        return watchdog.reading_records()


class LoaderFeed:
    """A `Feed` over DataLoaders. `start` creates their processes: call it before there are threads and sockets."""

    def __init__(
        self, requests: LoaderRequests, plan: TrainingPlan, options: LoaderOptions, device: torch.device
    ) -> None:
        self.plan = plan
        self.requests = requests
        self._options = options
        self._device = device
        self._lanes: list[_LoaderLane] = []
        self._expected: tuple[int, RankRange, int] | None = (
            None  # the arguments of the next call of `prefetch`, if nothing changes
        )
        self._early: dict[StepAndRank, Batch | None] = {}

    def start(self) -> LoaderFeed:
        lanes = self.requests.count_lanes(self._options.num_workers)
        processes = min(self._options.num_workers, 1) if lanes > 1 else self._options.num_workers
        self._lanes = [_LoaderLane(self.requests, self._options, processes) for _ in range(lanes)]
        for lane in self._lanes:
            lane.start()
        return self

    def close(self) -> None:
        for lane in self._lanes:
            lane.close()
        self._lanes = []

    def prefetch(self, step: int, share: RankRange, passes: int = 1) -> None:
        if (step, share, passes) != self._expected:
            for number, lane in enumerate(self._lanes):
                keys = self._iterate_keys(step, share, passes, number)
                lane.restart(keys, lambda key: key[0] >= step and key[1] in share and key not in self._early)
        self._expected = (step + passes, share, passes)

    def read_early(self, step: int, logical_rank: int) -> Batch | None:
        self._early = {(step, logical_rank): self.read_batch(step, logical_rank)}
        return self._early[step, logical_rank]

    def read_batch(self, step: int, logical_rank: int) -> Batch | None:
        key = (step, logical_rank)
        if key in self._early:
            seed_everything(self.plan.seed, *key)
            return self._early.pop(key)
        delivery = self._lanes[logical_rank % len(self._lanes)].wait_for(key)
        seed_everything(self.plan.seed, *key)  # reading in this process may have drawn from other random numbers
        if delivery is None:
            return None
        self.requests.on_loaded(delivery)
        return self._to_batch(delivery)

    def read_sample(self, step: int = 0, rank: int = 0) -> CollatedBatch | None:
        """A batch of the plan, read in this process and not counted, to warm a model up. None if it is empty."""
        request = self.requests.make_request(step, rank)
        if request is None:
            return None
        with preserve_random_state():
            return self._to_batch(self.requests.fetcher.__getitems__(request))

    def _to_batch(self, delivery: LoadedBatch) -> CollatedBatch | None:
        if delivery.batch is None:
            return None
        collated = move_to_device(delivery.batch, self._device)
        if isinstance(collated, tuple | list) and len(collated) == 2:
            return CollatedBatch(collated[0], collated[1], delivery.size, collated)
        return CollatedBatch(collated, None, delivery.size, collated)

    def _iterate_keys(self, step: int, share: RankRange, passes: int, lane: int) -> Iterator[StepAndRank]:
        """The slices of a lane that this share computes from `step` on, in their order."""
        ranks = [rank for rank in range(share.first, share.stop) if rank % len(self._lanes) == lane]
        for first in range(step, self.plan.total_steps, passes):
            for rank in ranks:
                for number in range(first, min(first + passes, self.plan.total_steps)):
                    if (number, rank) not in self._early:
                        yield number, rank


class _LoaderLane:
    """One DataLoader. The lane itself is its batch sampler, which says what is read next."""

    def __init__(self, requests: LoaderRequests, options: LoaderOptions, processes: int) -> None:
        self._requests = requests
        self._processes = processes
        self._keys: Iterator[StepAndRank] = iter(())
        self._reading: set[StepAndRank] = set()
        self._ready: dict[StepAndRank, LoadedBatch | None] = {}
        self._is_wanted: Callable[[StepAndRank], bool] = lambda key: True
        self._iterator: Iterator[LoadedBatch] = iter(())
        process_options: dict[str, Any] = {}
        if processes:
            process_options = {
                "persistent_workers": True,  # steps have no end of an epoch at which processes could be replaced
                "prefetch_factor": (options.prefetch_factor or 2) * options.step_slices,
                "worker_init_fn": LoaderProcessSetup(options.ignores_terminate, options.worker_init_fn),
                "multiprocessing_context": options.multiprocessing_context,
                "timeout": options.timeout_s,
            }
        self._loader: DataLoader[LoadedBatch] = DataLoader(
            requests.fetcher,
            batch_sampler=self,  # yields requests, not lists of numbers
            collate_fn=pass_through,  # type: ignore[arg-type]  # gets what `__getitems__` returns
            num_workers=processes,
            pin_memory=options.pin_memory,
            generator=torch.Generator(),  # otherwise making an iterator would draw from the user's random numbers
            **process_options,
        )

    def start(self) -> None:
        """Create the processes. There is nothing to read yet."""
        self._iterator = iter(self._loader)

    def close(self) -> None:
        self._iterator = iter(())
        self._loader._iterator = None  # the last reference: torch ends its processes

    def restart(self, keys: Iterator[StepAndRank], is_wanted: Callable[[StepAndRank], bool]) -> None:
        """Read `keys` from now on; drop what was read ahead and is not wanted any more."""
        self._keys, self._is_wanted = keys, is_wanted
        self._ready = {key: delivery for key, delivery in self._ready.items() if is_wanted(key)}
        self._refill()

    def wait_for(self, key: StepAndRank) -> LoadedBatch | None:
        """Wait for the delivery of `key`, which is among the keys; None if its slice is empty."""
        while key not in self._ready:
            self._refill()
            try:
                with self._requests.while_waiting():
                    delivery = next(self._iterator)
            except StopIteration:
                # The last keys had empty slices: nothing was read for them.
                assert key in self._ready, f"step {key[0]}, logical rank {key[1]} was not expected"
                continue
            delivered = (delivery.step, delivery.rank)
            self._reading.discard(delivered)
            if self._is_wanted(delivered):
                self._ready[delivered] = delivery
        return self._ready.pop(key)

    def _refill(self) -> None:
        # torch asks for the next request when it returns a batch; without any batch left it needs a new iterator.
        if self._processes and not self._reading:
            self._iterator = iter(self._loader)

    def __iter__(self) -> _LoaderLane:
        return self

    def __next__(self) -> Any:
        """The next request, as torch asks for it."""
        for key in self._keys:
            if key in self._reading or key in self._ready:
                continue
            request = self._requests.make_request(*key)
            if request is None:
                self._ready[key] = None
                continue
            self._reading.add(key)
            return request
        raise StopIteration


def move_to_device(value: Any, device: torch.device) -> Any:
    """The same structure with its tensors on `device`; objects with a method `to`, as torch's batches have, use it."""
    if device.type == "cpu":
        return value
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=True)
    if callable(getattr(value, "to", None)):
        return value.to(device)
    if isinstance(value, dict):
        moved = {key: move_to_device(item, device) for key, item in value.items()}
        return moved if type(value) is dict else type(value)(moved)
    if isinstance(value, tuple | list):
        items = [move_to_device(item, device) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value
