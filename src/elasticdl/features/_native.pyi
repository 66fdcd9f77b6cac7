from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

PADDING: int  # bytes that can be read behind the end of a block

class Irregular(Exception):
    """The text is not plain CSV and must be read by another reader."""

class Stopped(Exception):
    """Raised in `count` and `summarize` after `stop` was called."""

class Question:
    def __init__(
        self,
        *,
        min_count: int,
        max_values: int,
        separator: str,
        steps: int,
        max_fractions: int,
        examples: int,
    ) -> None: ...

class Summary:
    @property
    def present(self) -> int: ...
    @property
    def kinds(self) -> int: ...
    @property
    def numbers(self) -> int: ...
    @property
    def dates(self) -> int: ...
    @property
    def fractions(self) -> int: ...
    @property
    def separated(self) -> int: ...
    @property
    def longest(self) -> int: ...
    @property
    def words(self) -> int: ...
    @property
    def frequent(self) -> int: ...
    @property
    def has_range(self) -> bool: ...
    @property
    def minimum(self) -> float: ...
    @property
    def maximum(self) -> float: ...
    @property
    def mean(self) -> float: ...
    @property
    def deviation(self) -> float: ...
    @property
    def quantiles(self) -> Sequence[tuple[int, float]]: ...
    @property
    def odd(self) -> Sequence[tuple[str, int]]: ...
    def values(self) -> tuple[bytes, NDArray[np.int64]]:
        """Returns the letters of all values, concatenated, and where each value ends."""
        ...
    def counts(self) -> NDArray[np.int64]: ...

class VocabularyIndex:
    """Positions of values in a vocabulary, which is given as the letters of all values and where each ends."""

    def __init__(self, letters: bytes, ends: NDArray[np.int64]) -> None: ...
    def find(self, letters: NDArray[np.uint8], offsets: NDArray[np.int32]) -> NDArray[np.int64]:
        """Returns the position of each value between two offsets; -1 for a value that is not in the vocabulary."""
        ...

def fingerprints(letters: NDArray[np.uint8], offsets: NDArray[np.int32] | NDArray[np.int64]) -> NDArray[np.uint64]:
    """Returns FarmHash's Fingerprint64 of each text between two offsets. ValueError if offsets leave the letters."""
    ...

class Counter:
    def __init__(
        self,
        *,
        columns: int,
        selected: Sequence[int],
        delimiter: str,
        memory_bytes: int,
        threads: int,
        directory: str,
    ) -> None: ...
    def count(self, block: NDArray[np.uint8], begin: int, end: int, max_rows: int) -> int:
        """Counts the complete records from `begin` on and returns where the first incomplete one begins.

        Raises Irregular, and RuntimeError if the disk fails.
        """
        ...
    def add_column(self) -> int: ...
    def add(self, column: int, value: str, rows: int) -> None: ...
    def finish(self) -> None:
        """Must be called before the first `summarize`."""
        ...
    def summarize(self, column: int, question: Question) -> Summary:
        """Must be called once for each column; several threads may call it for different columns."""
        ...
    def stop(self) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def has_crlf(self) -> bool: ...
    @property
    def spilled_bytes(self) -> int: ...
