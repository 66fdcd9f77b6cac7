"""Skips records that cannot be read or for which the user's function raises, up to a limit, and reports them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from elasticdl.data.interface import Indices
from elasticdl.errors import BadRecord, TooManyBadRecords

if TYPE_CHECKING:
    from elasticdl.data.dataset import Batch, Dataset

_log = logging.getLogger(__name__)

ReportBadRecord = Callable[[str, int, str], None]  # source, record, why


class BadRecords:
    """How many records of a job may be bad, and those that this worker found. Used by the threads that read."""

    def __init__(self, limit: int = 0, tell: ReportBadRecord = lambda source, record, why: None) -> None:
        self.limit = limit
        self._tell = tell
        self._known: dict[tuple[str, int], str] = {}

    def add(self, source: str, record: int, why: str) -> None:
        """Tell of a record once, however often it is met. Raises TooManyBadRecords past the limit of the job."""
        if (source, record) in self._known:
            return
        self._known[source, record] = why
        _log.warning("record %d is skipped: %s", record, why)
        self._tell(source, record, why)
        if len(self._known) > self.limit:
            raise TooManyBadRecords(describe_excess(len(self._known), self.limit, why))

    def read_batch(
        self,
        dataset: Dataset,
        indices: Indices,
        take: Callable[[], Any] | None = None,
        seed: Callable[[], None] = lambda: None,
    ) -> Batch | None:
        """The batch of the good ones among `indices`; None where none is left. `take` gives what was read already."""
        try:
            seed()
            return dataset.make_batch(take() if take is not None else dataset.read(indices), indices)
        except BadRecord as exc:
            _log.warning("%s; it is tried once more", exc)
        try:
            seed()
            return dataset.read_batch(indices)
        except BadRecord as exc:
            if not self.limit:
                raise bad_record_error(exc) from exc
            good = self._sort_out(dataset, indices, seed)
            if len(good) == len(indices):
                raise  # no record is at fault alone
        seed()
        return dataset.read_batch(good) if len(good) else None

    def _sort_out(self, dataset: Dataset, indices: Indices, seed: Callable[[], None]) -> Indices:
        good: list[int] = []
        for record in indices.tolist():
            try:
                seed()
                dataset.read_batch(np.array([record]))
                good.append(record)
            except BadRecord as exc:
                self.add(dataset.source.name, record, str(exc))
        return np.array(good, dtype=np.int64)


def bad_record_error(exc: BadRecord) -> BadRecord:
    return BadRecord(f"{exc} (--bad_records=N skips up to N such records, and names each)")


def describe_excess(count: int, limit: int, why: str) -> str:
    return f"{count} records are bad, {limit} may be (data.bad_records, --bad_records); the newest: {why}"
