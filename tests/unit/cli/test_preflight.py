"""A wrong job ends before anything is launched, with nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.cli import home as jobs
from elasticdl.spec import load
from tests.unit.cli.conftest import Run


def train(elasticdl: Run, zoo: Path, *words: object) -> tuple[int, str]:
    result = elasticdl("train", f"--model_zoo={zoo}", "--model_def=digits.forward", "--job_name=a", *words)
    return result.exit_code, result.stderr


def left_behind(home: Path) -> list[Path]:
    return [path for path in home.rglob("*") if path.name != "jobs"]


def test_a_model_file_with_a_syntax_error_shows_the_line(elasticdl: Run, zoo: Path, home: Path) -> None:
    (zoo / "digits.py").write_text("def forward(:\n    pass\n")

    code, message = train(elasticdl, zoo, f"--training_data={zoo}/train.csv")

    assert code == 2
    assert f"{zoo}/digits.py, line 1: invalid syntax" in message
    assert left_behind(home) == []


def test_a_model_file_without_a_loss_names_file_function_and_signature(elasticdl: Run, zoo: Path) -> None:
    (zoo / "digits.py").write_text((zoo / "digits.py").read_text().replace("def loss(", "def los("))

    code, message = train(elasticdl, zoo, f"--training_data={zoo}/train.csv")

    assert code == 2
    assert "digits.py" in message
    assert "loss(labels, predictions)" in message


@pytest.mark.parametrize(
    ("content", "expected"),
    [(None, "no such file"), ("", "empty"), ("a,b\n", "no records")],
)
def test_data_that_is_missing_or_without_records_is_refused(
    elasticdl: Run, zoo: Path, home: Path, content: str | None, expected: str
) -> None:
    if content is not None:
        (zoo / "other.csv").write_text(content)

    code, message = train(elasticdl, zoo, f"--training_data={zoo}/other.csv")

    assert code == 2
    assert f"{zoo}/other.csv" in message
    assert expected in message
    assert left_behind(home) == []


def test_training_without_data_names_the_option(elasticdl: Run, zoo: Path) -> None:
    assert train(elasticdl, zoo) == (
        2,
        "error: data.training (--training_data): training needs data; give a file, a directory or a glob\n",
    )


@pytest.mark.parametrize("option", ["--output", "--checkpoint_dir"])
@pytest.mark.parametrize("place", ["/proc/elasticdl", "{zoo}/train.csv", "{zoo}/train.csv/below"])
def test_a_place_that_cannot_be_written_is_refused(
    elasticdl: Run, zoo: Path, home: Path, option: str, place: str
) -> None:
    code, message = train(elasticdl, zoo, f"--training_data={zoo}/train.csv", f"{option}={place.format(zoo=zoo)}")

    assert code == 2
    assert option in message
    assert "name another directory" in message or "name a directory" in message
    assert left_behind(home) == []


def test_a_job_name_that_is_taken_is_refused_with_both_ways_out(elasticdl: Run, zoo: Path) -> None:
    jobs.directory_of("a").create(load.resolve({"name": "a", "model": {"definition": "digits.forward"}}))

    code, message = train(elasticdl, zoo, f"--training_data={zoo}/train.csv")

    assert code == 2
    assert "--resume" in message
    assert "another --job_name" in message


def test_resuming_a_job_that_never_was_is_refused(elasticdl: Run, zoo: Path) -> None:
    code, message = train(elasticdl, zoo, f"--training_data={zoo}/train.csv", "--resume")

    assert code == 2
    assert "there is no job 'a' to go on with" in message


def test_evaluation_without_a_checkpoint_or_data_is_refused(elasticdl: Run, zoo: Path) -> None:
    model = [f"--model_zoo={zoo}", "--model_def=digits.forward"]

    assert "--checkpoint_dir_for_init" in elasticdl("evaluate", *model, "--validation_data=x.csv").stderr
    assert (
        "--prediction_data" in elasticdl("predict", *model, f"--checkpoint_dir_for_init={zoo}", "--output=out").stderr
    )


def test_predictions_without_a_place_to_go_are_refused(elasticdl: Run, zoo: Path) -> None:
    words = [f"--model_zoo={zoo}", "--model_def=digits.forward", f"--checkpoint_dir_for_init={zoo}"]

    result = elasticdl("predict", *words, f"--prediction_data={zoo}/train.csv")

    assert result.exit_code == 2
    assert "nowhere to put predictions" in result.stderr


def test_evaluating_during_training_needs_validation_data(elasticdl: Run, zoo: Path) -> None:
    code, message = train(elasticdl, zoo, f"--training_data={zoo}/train.csv", "--evaluation_steps=5")

    assert (code, "--validation_data" in message) == (2, True)


def test_a_script_that_is_not_there_is_refused(elasticdl: Run) -> None:
    result = elasticdl("run", "--workers=1", "nothing.py")

    assert result.exit_code == 2
    assert "nothing.py: no such script" in result.stderr


def test_a_home_that_cannot_be_made_is_refused(elasticdl: Run, zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTICDL_HOME", str(zoo / "train.csv"))

    code, message = train(elasticdl, zoo, f"--training_data={zoo}/train.csv")

    assert code == 2
    assert "set ELASTICDL_HOME to a writable place" in message


def test_predictions_are_not_mixed_with_what_lies_there(elasticdl: Run, zoo: Path, tmp_path: Path) -> None:
    output = tmp_path / "output"
    output.mkdir()
    (output / "model.json").write_text("{}")

    result = elasticdl(
        "predict", f"--model_zoo={zoo}", "--model_def=digits.forward", "--job_name=a", f"--output={output}",
        f"--prediction_data={zoo}/train.csv", f"--checkpoint_dir_for_init={tmp_path}",
    )  # fmt: skip

    assert result.exit_code == 2
    assert f"output {output} holds model.json" in result.stderr
    assert "name another with --output" in result.stderr


def test_a_job_with_ps_without_the_native_core_is_refused_with_the_fix(
    elasticdl: Run, zoo: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elasticdl.cli.preflight.find_spec", lambda name: None)

    code, message = train(elasticdl, zoo, f"--training_data={zoo}/train.csv", "--num_ps_pods=1")

    assert code == 2
    assert "no native core" in message and "install a C++ compiler" in message
    assert left_behind(home) == []
