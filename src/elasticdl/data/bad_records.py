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

ReportBadRecord = Callable[[str, int, str], None]  # source, record, reason


class BadRecords:
    """The bad records that this worker found, and how many a job may have. Safe for use by several threads."""

    def __init__(self, limit: int = 0, report: ReportBadRecord = lambda source, record, reason: None) -> None:
        self.limit = limit
        self._report = report
        self._reasons: dict[tuple[str, int], str] = {}

    def add(self, source: str, record: int, reason: str) -> None:
        """Reports a record once, however often it is read. Raises TooManyBadRecords above the limit of the job."""
        if (source, record) in self._reasons:
            return
        self._reasons[source, record] = reason
        _log.warning("record %d is skipped: %s", record, reason)
        self._report(source, record, reason)
        if len(self._reasons) > self.limit:
            raise TooManyBadRecords(describe_excess(len(self._reasons), self.limit, reason))

    def read_batch(
        self,
        dataset: Dataset,
        indices: Indices,
        take: Callable[[], Any] | None = None,
        seed: Callable[[], None] = lambda: None,
    ) -> Batch | None:
        """Returns the batch of the valid records among `indices`, or None if there are none.

        `take` returns records that were read before.
        """
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
            valid = self._find_valid(dataset, indices, seed)
            if len(valid) == len(indices):
                raise  # no single record is at fault
        seed()
        return dataset.read_batch(valid) if len(valid) else None

    def _find_valid(self, dataset: Dataset, indices: Indices, seed: Callable[[], None]) -> Indices:
        valid: list[int] = []
        for record in indices.tolist():
            try:
                seed()
                dataset.read_batch(np.array([record]))
                valid.append(record)
            except BadRecord as exc:
                self.add(dataset.source.name, record, str(exc))
        return np.array(valid, dtype=np.int64)


def bad_record_error(exc: BadRecord) -> BadRecord:
    return BadRecord(f"{exc} (--bad_records=N skips up to N such records, and names each)")


def describe_excess(count: int, limit: int, reason: str) -> str:
    return f"{count} records are bad, {limit} may be (data.bad_records, --bad_records); the newest: {reason}"
