"""Values to ids, by a vocabulary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import DataError
from elasticdl.features import current
from elasticdl.features.sql import has_counter
from elasticdl.features.transforms import finder
from elasticdl.features.transforms.interface import Array, Ops
from elasticdl.features.transforms.transformation import Elementwise, expect_bins

if TYPE_CHECKING:
    from elasticdl.features.statistics import Statistics


@dataclass(frozen=True)
class IndexLookup(Elementwise):
    """The place of a value in the vocabulary, int64. Others are `len(vocabulary) + fingerprint % num_oov_tokens`.

    The vocabulary is a list, or a file in UTF-8 with one value a line. Values are text; a whole number is looked up
    by its decimal text. A null is the empty text. The fingerprint is that of `Hashing`.

    >>> IndexLookup(["A", "B", "C"])(["B", "A", "unheard of", "C"])
    array([1, 0, 3, 2])
    """

    vocabulary: Sequence[str] | str | Path
    num_oov_tokens: int = 1

    def __post_init__(self) -> None:
        expect_bins("IndexLookup", "num_oov_tokens", self.num_oov_tokens)
        is_file = isinstance(self.vocabulary, str | Path)
        values = _lines(Path(str(self.vocabulary))) if is_file else tuple(self.vocabulary)  # type: ignore[arg-type]
        if wrong := [value for value in values if not isinstance(value, str)]:
            raise ValueError(f"IndexLookup: expected a vocabulary of text. Received: {wrong[0]!r} in it")
        if repeated := [value for value, count in Counter(values).items() if count > 1]:
            where = f"{self.vocabulary}: " if is_file else ""
            raise ValueError(f"IndexLookup: {where}expected every value once. Received: {repeated[0]!r} more than once")
        object.__setattr__(self, "vocabulary", values)

    @classmethod
    def from_statistics(
        cls,
        name: str,
        *,
        min_count: int = 1,
        num_oov_tokens: int = 1,
        statistics: Statistics | str | Path | None = None,
    ) -> IndexLookup:
        """The values of the column that are there `min_count` times or more, most frequent first."""
        found = current.column(name, statistics)
        if found.distinct and not found.values:
            raise DataError(f"column {name!r}: its statistics have no vocabulary; use Hashing, or analyze it as text")
        if min_count < found.least_count:
            raise DataError(
                f"column {name!r}: its statistics have values that are there {found.least_count} times or more only. "
                f"Received: min_count={min_count}; analyze again with a lower minimum"
            )
        counted = zip(found.values, found.counts, strict=True)
        return cls([value for value, count in counted if count >= min_count], num_oov_tokens)

    def num_bins(self) -> int:
        """Ids are 0 … num_bins() - 1."""
        return self._known + self.num_oov_tokens

    @property
    def _known(self) -> int:
        return len(self.vocabulary)  # type: ignore[arg-type]

    @cached_property
    def find(self) -> finder.Finder:
        return finder.native(self.vocabulary) if has_counter() else finder.plain(self.places)  # type: ignore[arg-type]

    @cached_property
    def places(self) -> dict[bytes, int]:
        """Of each value's bytes."""
        return {str(value).encode(): place for place, value in enumerate(self.vocabulary)}  # type: ignore[arg-type]

    @cached_property
    def tables(self) -> dict[str, NDArray[Any]]:
        """The whole numbers of the vocabulary, sorted, and their places: for values that are numbers in torch."""
        found = sorted((int(value), place) for value, place in self.places.items() if _is_decimal(value))
        return {
            "numbers": np.array([number for number, _ in found], np.int64),
            "places": np.array([place for _, place in found], np.int64),
        }

    def compute(self, ops: Ops, values: Array, tables: Mapping[str, Array]) -> Array:
        place = ops.index(values, self, tables)
        if self.num_oov_tokens == 1:  # no need of a fingerprint
            return ops.where(place < 0, self._known, place)
        return ops.where(place < 0, ops.buckets(values, self.num_oov_tokens) + self._known, place)


def _is_decimal(value: bytes) -> bool:
    """Whether it is the text of an int64, as that is written."""
    is_digits = value.removeprefix(b"-").isdigit() and len(value) <= 20
    return is_digits and str(int(value)).encode() == value and -(2**63) <= int(value) < 2**63


def _lines(path: Path) -> tuple[str, ...]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise DataError(f"IndexLookup: {path}: expected a file of UTF-8 with one value a line: {exc}") from exc
    lines = text.split("\n")
    return tuple(line.removesuffix("\r") for line in (lines[:-1] if lines[-1] == "" else lines))
