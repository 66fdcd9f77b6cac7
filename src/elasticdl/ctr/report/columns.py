"""One row for each column: its statistics, its transforms with the reason, and its importance to the model. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elasticdl.ctr.report.importance import Importance
from elasticdl.features import features_file, proposal
from elasticdl.features.features_file import FeaturesFile
from elasticdl.features.statistics import ColumnStatistics, Statistics

CHOSEN_IN_CONFIG, CHANGED_IN_FILE = "chosen in ctr.yaml", "changed in features.yaml"


@dataclass(frozen=True, slots=True)
class ReportColumn:
    name: str
    statistics: ColumnStatistics
    rows: int
    transforms: tuple[str, ...]
    reason: str
    importance: Importance | None  # None: the model does not use the column

    @property
    def missing_share(self) -> float:
        return self.statistics.missing / self.rows if self.rows else 0.0


def describe_columns(
    statistics: Statistics,
    written: FeaturesFile,
    overrides: Mapping[str, Any],
    importance: Sequence[Importance],
    where: str,
) -> tuple[ReportColumn, ...]:
    """Describes every column but the label, in the order of the data.

    `written` is features.yaml; `overrides` are those of ctr.yaml.
    """
    proposals = proposal.propose_transforms(statistics)
    proposed = features_file.parse_features_file(
        features_file.render_features_file(statistics, proposals, written.statistics), "the proposal"
    ).columns
    final = written.override(overrides, where).columns
    importance_by_column = {item.column: item for item in importance}
    described = []
    for name, specs in final.items():
        if specs != written.columns[name]:
            reason = CHOSEN_IN_CONFIG
        elif specs != proposed.get(name):
            reason = CHANGED_IN_FILE
        else:
            reason = proposals[name].reason
        texts = tuple(str(spec) for spec in specs)
        column = statistics.column(name)
        described.append(ReportColumn(name, column, statistics.rows, texts, reason, importance_by_column.get(name)))
    return tuple(described)
