"""Runs in loader processes: fetches the items of a request, collates them, and ends with the worker."""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from elasticdl.data.bad_records import bad_record_error
from elasticdl.data.interface import Indices, RecordSource
from elasticdl.errors import BadRecord, ElasticDLError
from elasticdl.signals import die_with_parent
from elasticdl.worker.training.numerics import seed_everything

_log = logging.getLogger(__name__)

READING_KEY = 2  # the last part of the random key of reading; the model's own numbers have the key without it


class ItemRequest(NamedTuple):
    """The items that a logical rank reads in a step."""

    step: int
    rank: int
    indices: Indices


class LoadedBatch(NamedTuple):
    """The result of a request. A tuple, so that torch pins the tensors in it."""

    step: int
    rank: int
    batch: Any
    size: int
    state: Any = None  # of the stream after this batch, if the dataset has one
    bad: tuple[tuple[int, str], ...] = ()  # items that were skipped, and why


@dataclass(frozen=True)
class ItemFetcher:
    """Reads items of a map-style dataset. For torch's DataLoader it is a dataset with `__getitems__`.

    An item that fails is read once more; then, with `skips_bad`, it is left out and reported.
    """

    source: RecordSource
    collate: Callable[[list[Any]], Any]
    seed: int
    skips_bad: bool = False

    def __getitems__(self, request: ItemRequest) -> LoadedBatch:
        try:
            return self._read(request, request.indices)
        except BadRecord as exc:
            _log.warning("%s; it is tried once more", exc)
        try:
            return self._read(request, request.indices)
        except BadRecord as exc:
            if not self.skips_bad:
                raise bad_record_error(exc) from exc
            bad = self._find_bad(request)
            if not bad:
                raise  # no single item is at fault
        good = np.array([number for number in request.indices.tolist() if number not in bad], dtype=np.int64)
        delivery = self._read(request, good) if len(good) else LoadedBatch(request.step, request.rank, None, 0)
        return delivery._replace(bad=tuple(bad.items()))

    def _read(self, request: ItemRequest, indices: Indices) -> LoadedBatch:
        seed_everything(self.seed, request.step, request.rank, READING_KEY)
        items = self.source.read(indices)
        batch = collate_items(self.collate, items, f"{self.source.name}, items {_abbreviate(indices.tolist())}")
        return LoadedBatch(request.step, request.rank, batch, 0 if batch is None else len(items))

    def _find_bad(self, request: ItemRequest) -> dict[int, str]:
        bad: dict[int, str] = {}
        for number in request.indices.tolist():
            try:
                self._read(request, np.array([number]))
            except BadRecord as exc:
                bad[number] = str(exc)
        return bad


@dataclass(frozen=True)
class TensorFetcher:
    """Reads rows of tensors in memory, all rows of a request at once."""

    tensors: tuple[torch.Tensor, ...]
    collate_columns: Callable[[list[torch.Tensor]], Any]  # makes a batch of the columns

    def __getitems__(self, request: ItemRequest) -> LoadedBatch:
        rows = torch.tensor(request.indices)
        batch = self.collate_columns([tensor.index_select(0, rows) for tensor in self.tensors])
        return LoadedBatch(request.step, request.rank, batch, len(rows))


def collate_items(collate: Callable[[list[Any]], Any], items: list[Any], where: str) -> Any:
    """One batch of `items`; raises BadRecord if the function fails."""
    try:
        return collate(items)
    except ElasticDLError:
        raise
    except Exception as exc:
        name = getattr(collate, "__qualname__", type(collate).__name__)
        raise BadRecord(f"{where}: {name} failed to collate them: {type(exc).__name__}: {exc}") from exc


@contextmanager
def preserve_random_state() -> Iterator[None]:
    """Restore the random states of Python, NumPy and torch afterwards, as if nothing had been drawn."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


def pass_through(delivery: LoadedBatch) -> LoadedBatch:
    """The `collate_fn` of the DataLoaders: the fetcher has collated already, with the request's random numbers."""
    return delivery


@dataclass(frozen=True)
class LoaderProcessSetup:
    """Runs first in every loader process: sets its reaction to SIGTERM, and ends it when its worker ends."""

    ignores_terminate: bool
    worker_init_fn: Callable[[int], None] | None

    def __call__(self, number: int) -> None:
        if self.ignores_terminate:
            # A preemption notice may reach the whole process group. The worker still needs batches before it leaves.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        die_with_parent()
        parent = multiprocessing.parent_process()
        if parent is not None and not parent.is_alive():  # it died before the request to die with it
            os._exit(0)
        if self.worker_init_fn is not None:
            self.worker_init_fn(number)


def _abbreviate(numbers: Sequence[int]) -> str:
    return f"{list(numbers[:4])} …" if len(numbers) > 4 else str(list(numbers))
