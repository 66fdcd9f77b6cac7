"""Reads a map-style Python dataset: anything with a length and items by number."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from typing import Any, Protocol

from elasticdl.data.interface import Indices, Record, RecordSource, check_indices
from elasticdl.errors import BadRecord, DataError, ElasticDLError


class MapDataset(Sized, Protocol):
    """What `torch.utils.data.Dataset` promises; `__getitems__(list[int])` is used where it is there."""

    def __getitem__(self, index: int, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class MappedSource:
    """The items of `dataset`. Reading runs a person's code, so it is never done ahead in another thread."""

    dataset: MapDataset
    name: str
    columns: tuple[str, ...] = ()
    can_read_ahead: bool = False

    def __len__(self) -> int:
        return len(self.dataset)

    def read(self, indices: Indices) -> list[Record]:
        numbers = check_indices(indices, len(self), self.name).tolist()
        many = getattr(self.dataset, "__getitems__", None)
        if many is not None:
            return self._items(many, numbers)
        return [self._item(number) for number in numbers]

    def locate(self, index: int) -> str:
        return f"{self.name}, item {index}"

    def close(self) -> None:
        """Nothing is held."""

    def _items(self, many: Any, numbers: list[int]) -> list[Record]:
        try:
            items = list(many(numbers))
        except ElasticDLError:
            raise
        except Exception as exc:
            raise BadRecord(f"{self.name}, items {numbers[:4]} …: {type(exc).__name__}: {exc}") from exc
        if len(items) != len(numbers):
            raise DataError(f"{self.name}: __getitems__ was asked for {len(numbers)} items and gave {len(items)}")
        return items

    def _item(self, number: int) -> Record:
        try:
            return self.dataset[number]
        except ElasticDLError:
            raise
        except Exception as exc:
            raise BadRecord(f"{self.locate(number)}: {type(exc).__name__}: {exc}") from exc


def as_source(given: object, name: str) -> RecordSource:
    """`given` as a source of records: itself if it is one, else as a map-style dataset."""
    if isinstance(given, RecordSource):
        return given
    if not (hasattr(given, "__len__") and hasattr(given, "__getitem__")):
        raise DataError(
            f"{name}: expected a dataset with __len__ and __getitem__, or a RecordSource, got {type(given).__name__}"
        )
    source = MappedSource(given, name)
    if len(source) == 0:
        raise DataError(f"{name}: the dataset has no items")
    return source
