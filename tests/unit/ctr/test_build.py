"""The directory of a config: made once, made again when the data is another, never over a person's changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elasticdl.ctr import build as building
from elasticdl.ctr import config
from elasticdl.data import columns
from elasticdl.data.sources import open_source
from elasticdl.errors import DataError, SpecError
from elasticdl.features.preprocessing.preprocessor import Preprocessor
from elasticdl.features.preprocessing.target_encoding import TargetFolds
from elasticdl.features.statistics import Statistics
from elasticdl.spec import DataSpec


def clicks(path: Path, rows: int = 400, seed: int = 0, shift: float = 0.0) -> Path:
    random = np.random.default_rng(seed)
    price, city = random.exponential(10.0, rows) + shift, random.integers(0, 20, rows)
    label = random.random(rows) < 0.2 + 0.02 * city
    lines = [f"{int(y)},{p:.2f},city-{c},7" for y, p, c in zip(label, price, city, strict=True)]
    path.write_text("clicked,price,city,same\n" + "\n".join(lines) + "\n")
    return path


class Said(list[str]):
    def __call__(self, text: str) -> None:
        self.append(text)


def build(tmp_path: Path, notices: Said | None = None, **options: Any) -> building.BuildResult:
    document = {"data": str(tmp_path / "clicks.csv"), "label": "clicked", "model": "deepfm", **options}
    parsed = config.parse_config(document, "ctr.yaml")
    return building.build_directory(
        parsed, tmp_path / "made", "ctr.yaml", notices if notices is not None else Said(), lambda *_: None
    )


def test_statistics_are_of_the_training_rows_alone(tmp_path: Path) -> None:
    clicks(tmp_path / "clicks.csv")
    built = build(tmp_path)

    assert (built.rows, Statistics.load(built.directory / "statistics.json").rows) == (320, 320)
    assert {"price", "city"} <= {
        name.partition(".")[0] for name in (*built.preprocessor.layout.field_names, *built.preprocessor.layout.numbers)
    }
    assert "same" not in built.preprocessor.columns
    assert Preprocessor.load(built.directory) == built.preprocessor


def test_files_that_are_up_to_date_are_not_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clicks(tmp_path / "clicks.csv")
    first = build(tmp_path)
    monkeypatch.setattr(building, "analyze", lambda *_: pytest.fail("analyzed again"))

    assert build(tmp_path) == first


def test_changes_by_hand_are_kept_and_change_the_preprocessor(tmp_path: Path) -> None:
    clicks(tmp_path / "clicks.csv")
    features = build(tmp_path).directory / "features.yaml"
    features.write_text(features.read_text().replace("city: ", "city: hashing(num_bins=7) # ", 1))
    clicks(tmp_path / "clicks.csv", rows=500, seed=1)
    notices = Said()

    assert "city.hashing" in build(tmp_path, notices).preprocessor.layout.field_names
    assert any("features.yaml was changed by hand and is kept" in text for text in notices)


def test_drift_of_the_data_is_reported(tmp_path: Path) -> None:
    clicks(tmp_path / "clicks.csv")
    build(tmp_path)
    clicks(tmp_path / "clicks.csv", seed=1, shift=500.0)
    notices = Said()
    before = Statistics.load(tmp_path / "made" / "statistics.json")
    build(tmp_path, notices, keep_statistics=True)

    assert any("since the last time: price" in text for text in notices)
    assert Statistics.load(tmp_path / "made" / "statistics.json") == before
    build(tmp_path)
    assert Statistics.load(tmp_path / "made" / "statistics.json") != before


def test_transforms_of_the_config_replace_proposed_ones(tmp_path: Path) -> None:
    clicks(tmp_path / "clicks.csv")
    built = build(tmp_path, features={"price": "discretization(bins=[5, 10])", "crosses": ["cross(price, city)"]})

    assert {"price.discretization", "price*city"} <= set(built.preprocessor.layout.field_names)


@pytest.mark.parametrize(
    ("more", "error", "complaint"),
    [
        ({"model": "deepfn"}, SpecError, r"there is no CTR model 'deepfn'; did you mean deepfm\?"),
        ({"label": "click"}, DataError, "no column 'click' for the label; did you mean 'clicked'"),
        ({"label": "price"}, DataError, "expected 0 and 1"),
        ({"features": {"prise": "drop"}}, SpecError, "ctr.yaml: features.prise: no column"),
        ({"weight": "price"}, SpecError, "'price' is a feature, too; drop it"),
        ({"data": "nowhere.csv"}, DataError, "nowhere.csv"),
    ],
)
def test_a_config_that_cannot_be_built_is_reported(
    tmp_path: Path, more: Any, error: type[Exception], complaint: str
) -> None:
    clicks(tmp_path / "clicks.csv")

    with pytest.raises(error, match=complaint):
        build(tmp_path, **more)


def test_the_first_rows_are_those_that_stand_first_and_a_tab_is_a_delimiter(tmp_path: Path) -> None:
    lines = [f"{row % 2}\t{'early' if row < 160_000 else 'late'}\t{row % 7}" for row in range(200_000)]
    (tmp_path / "clicks.csv").write_text("clicked\twhen\tn\n" + "\n".join(lines) + "\n")
    built = build(tmp_path, delimiter="tab")

    assert Statistics.load(built.directory / "statistics.json").columns["when"].values == ("early",)


def test_target_rates_are_counted_once_and_again_after_a_preprocessor_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clicks(tmp_path / "clicks.csv")
    counted = Said()
    monkeypatch.setattr(TargetFolds, "save", _noting(TargetFolds.save, counted))

    first = build(tmp_path, features={"city": ["hashing(num_bins=9)", "target_encoding"]})
    again = build(tmp_path, features={"city": ["hashing(num_bins=9)", "target_encoding"]})
    without = build(tmp_path)
    last = build(tmp_path, features={"city": ["hashing(num_bins=9)", "target_encoding"]})

    assert first.preprocessor.target_encoders and not without.preprocessor.target_encoders
    assert first == again == last and len(counted) == 2
    assert Preprocessor.load(last.directory) == last.preprocessor


def _noting(function: Any, counted: Said) -> Any:
    def noted(*arguments: Any) -> Any:
        counted("saved")
        return function(*arguments)

    return noted


def said_yes_or_no(path: Path, positive: str = "yes", negative: str = "no") -> Path:
    """As `clicks`, with words in place of 1 and 0."""
    header, *lines = clicks(path).read_text().splitlines()
    mapped_lines = [f"{positive if line[0] == '1' else negative}{line[1:]}" for line in lines]
    path.write_text("\n".join([header, *mapped_lines]) + "\n")
    return path


def test_labels_of_words_are_those_of_numbers(tmp_path: Path) -> None:
    clicks(tmp_path / "clicks.csv")
    plain = build(tmp_path, features={"city": "target_encoding()"}).preprocessor
    (tmp_path / "words").mkdir()
    said_yes_or_no(tmp_path / "words" / "clicks.csv")
    label = {"column": "clicked", "values": {"yes": 1, "no": 0}}
    mapped = build(tmp_path / "words", label=label, features={"city": "target_encoding()"}).preprocessor

    assert Preprocessor.load(tmp_path / "words" / "made") == mapped
    assert mapped.label_values == {"yes": 1, "no": 0}
    assert mapped.target_encoders == plain.target_encoders  # how often each value was clicked
    batch = pa.RecordBatch.from_pydict({"clicked": ["no", "yes", " yes"]})
    assert mapped.read_labels(batch).tolist() == [0.0, 1.0, 1.0]


@pytest.mark.parametrize(("value", "received"), [("maybe", "'maybe'"), (None, "nothing")])
def test_a_label_that_no_value_stands_for_is_refused(tmp_path: Path, value: str | None, received: str) -> None:
    said_yes_or_no(tmp_path / "clicks.csv")
    front = build(tmp_path, label={"column": "clicked", "values": {"yes": 1, "no": 0}}).preprocessor

    with pytest.raises(DataError, match=f"expected one of 'yes', 'no', received {received}; name it in its values"):
        front.read_labels(pa.RecordBatch.from_pydict({"clicked": pa.array(["no", value], pa.string())}))


def test_a_label_of_words_without_a_mapping_is_refused_with_the_mapping(tmp_path: Path) -> None:
    said_yes_or_no(tmp_path / "clicks.csv")

    with pytest.raises(DataError, match=r"label: \{column: clicked, values: \{'yes': 1, 'no': 0\}\}"):
        build(tmp_path)


def test_a_value_that_the_mapping_does_not_name_is_refused_before_training(tmp_path: Path) -> None:
    said_yes_or_no(tmp_path / "clicks.csv", negative="nope")

    with pytest.raises(
        DataError, match=r"values such as 'nope', which label\.values does not name; it names 'yes', 'no'"
    ):
        build(tmp_path, label={"column": "clicked", "values": {"yes": 1, "no": 0}})


def test_numbers_other_than_0_and_1_may_be_labels(tmp_path: Path) -> None:
    said_yes_or_no(tmp_path / "clicks.csv", "1", "-1")
    front = build(tmp_path, label={"column": "clicked", "values": {1: 1, -1: 0}}).preprocessor

    assert front.read_labels(pa.RecordBatch.from_pydict({"clicked": ["1", "-1"]})).tolist() == [1.0, 0.0]


def test_truth_values_of_parquet_may_be_labels(tmp_path: Path) -> None:
    rows = 200
    table = {"clicked": [row % 3 == 0 for row in range(rows)], "city": [f"city-{row % 7}" for row in range(rows)]}
    pq.write_table(pa.table(table), tmp_path / "clicks.parquet")
    values = {True: 1, False: 0}
    built = build(tmp_path, data=str(tmp_path / "clicks.parquet"), label={"column": "clicked", "values": values})
    source = open_source(str(tmp_path / "clicks.parquet"), DataSpec())

    batch = columns.read_columns(source, np.arange(3), built.preprocessor.column_types)

    assert built.preprocessor.read_labels(batch).tolist() == [1.0, 0.0, 0.0]
