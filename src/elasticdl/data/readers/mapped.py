"""Reads a map-style Python dataset: anything with a length and items by number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from elasticdl.data.interface import Indices, Record, RecordSource, check_indices
from elasticdl.errors import BadRecord, DataError, ElasticDLError


@runtime_checkable
class MapDataset(Protocol):
    """A dataset with items by number, such as most subclasses of `torch.utils.data.Dataset`."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


@runtime_checkable
class BatchMapDataset(MapDataset, Protocol):
    """A map-style dataset that returns several items at once, as torch's DataLoader uses it."""

    def __getitems__(self, indices: list[int], /) -> Any: ...


@dataclass(frozen=True, slots=True)
class MappedSource:
    """The items of `dataset`. Reading runs the user's code, so no thread reads ahead."""

    dataset: MapDataset
    name: str
    columns: tuple[str, ...] = ()
    can_read_ahead: bool = False

    def __len__(self) -> int:
        return len(self.dataset)

    def read(self, indices: Indices) -> list[Record]:
        numbers = check_indices(indices, len(self), self.name).tolist()
        if isinstance(self.dataset, BatchMapDataset):
            return self._read_items(self.dataset.__getitems__, numbers)
        return [self._read_item(number) for number in numbers]

    def locate(self, index: int) -> str:
        return f"{self.name}, item {index}"

    def close(self) -> None:
        """Does nothing: no file is open."""

    def _read_items(self, get_items: Callable[[list[int]], Any], numbers: list[int]) -> list[Record]:
        try:
            items = list(get_items(numbers))
        except ElasticDLError:
            raise
        except Exception as exc:
            raise BadRecord(f"{self.name}, items {numbers[:4]} …: {type(exc).__name__}: {exc}") from exc
        if len(items) != len(numbers):
            raise DataError(f"{self.name}: __getitems__ was called for {len(numbers)} items and returned {len(items)}")
        return items

    def _read_item(self, number: int) -> Record:
        try:
            return self.dataset[number]
        except ElasticDLError:
            raise
        except Exception as exc:
            raise BadRecord(f"{self.locate(number)}: {type(exc).__name__}: {exc}") from exc


def as_source(dataset: object, name: str) -> RecordSource:
    """Returns `dataset` as a source of records: itself if it is one, otherwise as a map-style dataset."""
    if isinstance(dataset, RecordSource):
        return dataset
    if not isinstance(dataset, MapDataset):
        raise DataError(
            f"{name}: expected a dataset with __len__ and __getitem__, or a RecordSource, got {type(dataset).__name__}"
        )
    source = MappedSource(dataset, name)
    if len(source) == 0:
        raise DataError(f"{name}: the dataset has no items")
    return source
