"""Records of very many jobs in little memory: columns of numbers, some 120 bytes a job where objects take 500."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from elasticdl.sim.interface import Record, Span

_WHOLE = ("requested", "priority", "restarts")
_TIMES = ("submitted_at", "waited_s", "attained_s")
_OPTIONAL = ("started_at", "finished_at", "fairness")  # NaN stands for None
_TEXTS = ("name", "application", "why")


class Records(Sequence[Record]):
    """Only grows. What it gives back equals what it was given."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._numbers = {name: array("d") for name in (*_WHOLE, *_TIMES, *_OPTIONAL)}
        self._texts = bytearray()
        self._ends = array("Q")  # of each text, three a record
        self._spans: dict[int, list[Span]] = {}
        for record in records:
            self.append(record)

    def append(self, record: Record) -> None:
        if record.spans:
            self._spans[len(self)] = record.spans
        for name, column in self._numbers.items():
            value = getattr(record, name)
            column.append(math.nan if value is None else value)
        for name in _TEXTS:
            self._texts += getattr(record, name).encode()
            self._ends.append(len(self._texts))

    def column(self, name: str) -> NDArray[np.float64]:
        """One number of every record; NaN where there is none."""
        return np.array(self._numbers[name])

    def __len__(self) -> int:
        return len(self._ends) // len(_TEXTS)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        numbers = {name: column[index] for name, column in self._numbers.items()}
        first = index * len(_TEXTS)
        starts = [self._ends[first - 1] if first else 0, *self._ends[first : first + len(_TEXTS) - 1]]
        texts = [self._texts[start : self._ends[first + at]].decode() for at, start in enumerate(starts)]
        return Record(
            **dict(zip(_TEXTS, texts, strict=True)),  # type: ignore[arg-type]
            **{name: int(numbers[name]) for name in _WHOLE},  # type: ignore[arg-type]
            **{name: numbers[name] for name in _TIMES},  # type: ignore[arg-type]
            **{name: None if math.isnan(numbers[name]) else numbers[name] for name in _OPTIONAL},  # type: ignore[arg-type]
            spans=self._spans.get(index, []),
        )
