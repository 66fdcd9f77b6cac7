"""UCI's Adult data set for wide_deep.py: python -m elasticdl.zoo.census.data ADULT.DATA ADULT.TEST DIRECTORY

The files are as the UCI repository has them (adult.data and adult.test), plain, .gz or .xz. It writes train.csv and
test.csv to DIRECTORY, with a header and empty fields for unknown values, and statistics.json of the first.
"""

from __future__ import annotations

import csv
import gzip
import lzma
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elasticdl.errors import DataError
from elasticdl.features.analysis import AnalysisSource, analyze
from elasticdl.features.sql.interface import AnalysisOptions

NUMBERS = ("age", "education_num", "capital_gain", "capital_loss", "hours_per_week")
COLUMNS = (
    "age", "workclass", "weight", "education", "education_num", "marital_status", "occupation", "relationship",
    "race", "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country", "income",
)  # fmt: skip
UNKNOWN = "?"


def read_rows(path: Path) -> Iterator[list[str]]:
    """Yields the fields of each row, "" for unknown ones, without the test file's remark and full stops."""
    unpack: Any = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)
    try:
        with unpack(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                text = line.strip().removesuffix(".")
                if not text or text.startswith("|"):
                    continue
                fields = [field.strip() for field in text.split(",")]
                if len(fields) != len(COLUMNS):
                    raise DataError(f"{path}, line {number}: expected {len(COLUMNS)} fields. Received: {len(fields)}")
                yield ["" if field == UNKNOWN else field for field in fields]
    except (OSError, lzma.LZMAError, EOFError, UnicodeDecodeError) as exc:
        raise DataError(f"{path}: cannot be read: {exc}") from exc


def write_data(training: Path, test: Path, directory: Path) -> tuple[Path, Path, Path]:
    """Writes train.csv, test.csv and statistics.json; returns their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = directory / "train.csv", directory / "test.csv"
    for source, path in zip((training, test), paths, strict=True):
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(read_rows(source))
    statistics = directory / "statistics.json"
    analyze(AnalysisSource(str(paths[0])), AnalysisOptions(min_count=1)).save(statistics)
    return *paths, statistics


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("expected: python -m elasticdl.zoo.census.data ADULT.DATA ADULT.TEST DIRECTORY")
    for path in write_data(*map(Path, sys.argv[1:])):
        print(path)
