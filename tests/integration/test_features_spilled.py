"""A vocabulary that does not fit into the memory that analysis may use."""

from __future__ import annotations

from pathlib import Path

from elasticdl.features.analysis import AnalysisSource, analyze
from elasticdl.features.sql.interface import AnalysisOptions

MEMORY_BYTES = 100_000_000
LENGTH, DISTINCT = 220, 500_000


def test_a_vocabulary_larger_than_memory_is_counted_on_disk(tmp_path: Path) -> None:
    assert LENGTH * DISTINCT > MEMORY_BYTES
    path = tmp_path / "clicks.csv"
    with path.open("w") as file:
        file.write("label,page\n0,often\n1,often\n")
        file.writelines(f"{number % 2},{number:0{LENGTH}}x\n" for number in range(DISTINCT))

    statistics = analyze(AnalysisSource(str(path), memory="100MB", temporary=tmp_path), AnalysisOptions(), "label")

    assert statistics.rows == DISTINCT + 2
    assert statistics.column("page").distinct == DISTINCT + 1
    assert statistics.column("page").values == ("often",)
    assert [entry.name for entry in tmp_path.iterdir()] == ["clicks.csv"]
