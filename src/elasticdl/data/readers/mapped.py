"""Reads a map-style Python dataset: anything with a length and items by number."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from typing import Any, Protocol

from elasticdl.data.interface import Indices, Record, RecordSource, check_indices
from elasticdl.errors import BadRecord, DataError, ElasticDLError


class MapDataset(Sized, Protocol):
    """The interface of `torch.utils.data.Dataset`; `__getitems__(list[int])` is used if there is one."""

    def __getitem__(self, index: int, /) -> Any: ...


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
        get_items = getattr(self.dataset, "__getitems__", None)
        if get_items is not None:
            return self._read_items(get_items, numbers)
        return [self._read_item(number) for number in numbers]

    def locate(self, index: int) -> str:
        return f"{self.name}, item {index}"

    def close(self) -> None:
        """Nothing is open."""

    def _read_items(self, get_items: Any, numbers: list[int]) -> list[Record]:
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
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise DataError(
            f"{name}: expected a dataset with __len__ and __getitem__, or a RecordSource, got {type(dataset).__name__}"
        )
    source = MappedSource(dataset, name)
    if len(source) == 0:
        raise DataError(f"{name}: the dataset has no items")
    return source
