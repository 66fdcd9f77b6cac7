"""Each column with what becomes of it, and why."""

from __future__ import annotations

from elasticdl.ctr.report.columns import CHANGED_IN_FILE, CHOSEN_IN_CONFIG, describe_columns
from elasticdl.ctr.report.importance import Importance
from elasticdl.features import features_file, proposal
from elasticdl.features.statistics import ColumnKind, ColumnStatistics, Statistics


def text(distinct: int) -> ColumnStatistics:
    values = tuple(f"v{number}" for number in range(distinct))
    return ColumnStatistics(kind=ColumnKind.TEXT, missing=50, distinct=distinct, values=values, counts=(20,) * distinct)


STATISTICS = Statistics(
    source="clicks.csv",
    rows=1000,
    label="clicked",
    columns={"clicked": text(2), "a": text(5), "b": text(6), "c": text(7)},
)


def test_each_column_has_its_transform_the_reason_and_its_importance() -> None:
    proposals = proposal.propose_transforms(STATISTICS)
    written = features_file.parse_features_file(
        features_file.render_features_file(STATISTICS, proposals, "statistics.json"), "features.yaml"
    )
    changed = written.override({"b": "hashing(num_bins=10)"}, "features.yaml")
    worth = Importance(column="a", logloss_rise=0.1, logloss_deviation=None, auc_drop=0.2, auc_deviation=None)

    columns = {
        column.name: column for column in describe_columns(STATISTICS, changed, {"c": "drop"}, [worth], "ctr.yaml")
    }

    assert list(columns) == ["a", "b", "c"]
    assert columns["a"].reason == proposals["a"].reason and columns["a"].importance == worth
    assert (columns["b"].transforms, columns["b"].reason) == (("hashing(num_bins=10)",), CHANGED_IN_FILE)
    assert columns["c"].reason == CHOSEN_IN_CONFIG and columns["c"].transforms[0].startswith("drop")
    assert columns["b"].importance is None and columns["b"].missing_share == 0.05
