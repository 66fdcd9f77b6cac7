"""`elasticdl features` on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from elasticdl.cli.main import VERBS, cli
from elasticdl.errors import DataError
from elasticdl.features import features_file
from elasticdl.features.statistics import Statistics


@pytest.fixture
def clicks(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "clicks.csv"
    rows = [f"{n % 2},{n * n % 97},{'Rome' if n % 3 else 'Oslo'},{'x|y' if n % 2 else 'z|x'}" for n in range(400)]
    path.write_text("label,visits,city,seen\n" + "\n".join(rows) + "\n")
    return path


def run(*words: object) -> Result:
    return CliRunner().invoke(cli.get_command(None, "features"), [str(word) for word in words])  # type: ignore[arg-type]


def analyze(clicks: Path, *words: object) -> Result:
    return run("analyze", clicks, "--label", "label", "-o", clicks.with_name("features.yaml"), *words)


def test_the_features_command_exists() -> None:
    assert "features" in VERBS


def test_analyze_writes_three_files_that_fit_together(clicks: Path) -> None:
    done = analyze(clicks)

    assert done.exit_code == 0, done.output
    assert "visits" in done.output
    read = features_file.load_features_file(clicks.with_name("features.yaml"))
    statistics = Statistics.load(clicks.with_name(read.statistics))
    read.check_against(statistics, "features.yaml")
    assert str(read.columns["seen"][0]).startswith("sequence(")
    assert clicks.with_name("features.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in clicks.parent.iterdir()) == [
        "clicks.csv", "features.png", "features.yaml", "statistics.json",
    ]  # fmt: skip


def test_existing_files_are_replaced_only_on_request(clicks: Path) -> None:
    clicks.with_name("features.yaml").write_text("mine")

    refused = analyze(clicks)

    assert "--replace" in refused.output
    assert clicks.with_name("features.yaml").read_text() == "mine"
    assert analyze(clicks, "--replace").exit_code == 0


def test_nothing_is_written_when_the_data_is_wrong(clicks: Path) -> None:
    clicks.write_text("label,x\n0,1\n7,2\n")

    done = analyze(clicks)

    assert isinstance(done.exception, DataError)
    assert [path.name for path in clicks.parent.iterdir()] == ["clicks.csv"]


def test_nothing_is_written_when_the_analysis_is_interrupted(clicks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("elasticdl.features.statistics_figure.draw_statistics", stopped)

    done = analyze(clicks)

    assert done.exit_code != 0
    assert [path.name for path in clicks.parent.iterdir()] == ["clicks.csv"]


def test_a_sample_reports_its_error_bound(clicks: Path) -> None:
    done = analyze(clicks, "--sample", "0.5")

    assert "Standard errors" in done.output
    assert "±" in done.output


def test_show_prints_the_table_again(clicks: Path) -> None:
    analyze(clicks)

    shown = run("show", clicks.with_name("statistics.json"))

    assert "400 rows" in shown.output
    assert "Rome 66%" in shown.output


def test_drift_is_reported_for_different_data_only(clicks: Path) -> None:
    analyze(clicks)
    statistics = clicks.with_name("statistics.json")
    other_data = clicks.with_name("other.csv")
    other_data.write_text("label,visits,town\n" + "\n".join(f"{n % 2},{n + 5000},Bonn" for n in range(400)))

    same, drifted = (
        run("drift", clicks, "--statistics", statistics),
        run("drift", other_data, "--statistics", statistics),
    )

    assert (same.exit_code, drifted.exit_code) == (0, 1)
    assert "0 drifted" in same.output
    for words in ("visits: another distribution", "city: the column is missing", "town: a new column"):
        assert words in drifted.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "/no/such/features.yaml"], "no directory"),
        (["-o", "features.txt"], "YAML"),
        (["--delimiter", "ab"], "--delimiter"),
        (["--sample", "0"], "--sample"),
    ],
)
def test_wrong_options_are_reported(clicks: Path, words: list[str], message: str) -> None:
    done = run("analyze", clicks, "--label", "label", *words)

    assert done.exit_code == 2
    assert message in done.output


@pytest.mark.parametrize("verb", ["analyze", "drift", "show"])
def test_help_has_examples(verb: str) -> None:
    assert f"elasticdl features {verb} " in run(verb, "--help").output
