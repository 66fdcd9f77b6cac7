"""Each column in one row: what it is, what becomes of it and why, and what it is worth to the model. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elasticdl.ctr.report.importance import Importance
from elasticdl.features import commented, file, proposal
from elasticdl.features.file import FeaturesFile
from elasticdl.features.statistics import ColumnStatistics, Statistics

IN_CONFIG, IN_FILE = "chosen in ctr.yaml", "changed in features.yaml"


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    statistics: ColumnStatistics
    rows: int
    treatments: tuple[str, ...]
    reason: str
    importance: Importance | None  # None: the model does not see it

    @property
    def missing(self) -> float:
        return self.statistics.missing / self.rows if self.rows else 0.0


def columns(
    statistics: Statistics,
    written: FeaturesFile,
    chosen: Mapping[str, Any],
    importance: Sequence[Importance],
    where: str,
) -> tuple[Column, ...]:
    """Every column but the label, in the order of the data. `written`: features.yaml; `chosen`: by ctr.yaml."""
    proposals = proposal.propose(statistics)
    proposed = file.parse(commented.written(statistics, proposals, written.statistics), "the proposal").columns
    final = written.override(chosen, where).columns
    worth = {one.column: one for one in importance}
    found = []
    for name, treatments in final.items():
        if treatments != written.columns[name]:
            reason = IN_CONFIG
        elif treatments != proposed.get(name):
            reason = IN_FILE
        else:
            reason = proposals[name].reason
        texts = tuple(str(one) for one in treatments)
        found.append(Column(name, statistics.of(name), statistics.rows, texts, reason, worth.get(name)))
    return tuple(found)
