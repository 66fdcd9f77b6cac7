"""A wrong job ends before anything is launched, with nothing left behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from elasticdl.extras import install_command
from elasticdl.jobs import home as jobs
from elasticdl.spec import load
from tests.unit.cli.conftest import Run

KERAS_MODEL = """
import tensorflow as tf

def forward(): return tf.keras.Sequential()
def loss(labels, predictions): return 0
def optimizer(lr=0.1): return None
def dataset_fn(dataset, mode, metadata): return dataset
"""


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
def test_a_directory_that_cannot_be_written_is_refused(
    elasticdl: Run, zoo: Path, home: Path, option: str, place: str
) -> None:
    code, message = train(elasticdl, zoo, f"--training_data={zoo}/train.csv", f"{option}={place.format(zoo=zoo)}")

    assert code == 2
    assert option in message
    assert "name another directory" in message or "name a directory" in message
    assert left_behind(home) == []


def test_a_job_name_in_use_is_refused_with_both_fixes(elasticdl: Run, zoo: Path) -> None:
    jobs.job_directory("a").create(load.resolve_job({"name": "a", "model": {"definition": "digits.forward"}}))

    code, message = train(elasticdl, zoo, f"--training_data={zoo}/train.csv")

    assert code == 2
    assert "--resume" in message
    assert "another --job_name" in message


def test_resuming_a_job_that_never_existed_is_refused(elasticdl: Run, zoo: Path) -> None:
    code, message = train(elasticdl, zoo, f"--training_data={zoo}/train.csv", "--resume")

    assert code == 2
    assert "there is no job 'a' to go on with" in message


def test_evaluation_without_a_checkpoint_or_data_is_refused(elasticdl: Run, zoo: Path) -> None:
    model = [f"--model_zoo={zoo}", "--model_def=digits.forward"]

    assert "--checkpoint_dir_for_init" in elasticdl("evaluate", *model, "--validation_data=x.csv").stderr
    assert (
        "--prediction_data" in elasticdl("predict", *model, f"--checkpoint_dir_for_init={zoo}", "--output=out").stderr
    )


def test_predictions_without_an_output_are_refused(elasticdl: Run, zoo: Path) -> None:
    words = [f"--model_zoo={zoo}", "--model_def=digits.forward", f"--checkpoint_dir_for_init={zoo}"]

    result = elasticdl("predict", *words, f"--prediction_data={zoo}/train.csv")

    assert result.exit_code == 2
    assert "nowhere to put predictions" in result.stderr


def test_evaluating_during_training_needs_validation_data(elasticdl: Run, zoo: Path) -> None:
    code, message = train(elasticdl, zoo, f"--training_data={zoo}/train.csv", "--evaluation_steps=5")

    assert (code, "--validation_data" in message) == (2, True)


def test_a_ddp_script_is_refused_before_launch_with_the_option_that_runs_it(elasticdl: Run, tmp_path: Path) -> None:
    script = tmp_path / "train_ddp.py"
    script.write_text("import torch.distributed as dist\ndist.init_process_group('gloo')\n")

    result = elasticdl("run", "--workers=1", script)

    assert result.exit_code == 2
    assert "elasticdl run --compat ddp train_ddp.py" in result.stderr


def test_options_without_effect_on_an_unmodified_script_are_refused(elasticdl: Run, tmp_path: Path) -> None:
    result = elasticdl("run", "--compat=ddp", "--checkpoint_steps=10", "train_ddp.py")

    assert result.exit_code == 2
    assert "--checkpoint_steps with --compat: an unmodified script writes its own checkpoints" in result.stderr


def test_an_unknown_kind_of_compatibility_is_refused(elasticdl: Run, tmp_path: Path) -> None:
    result = elasticdl("run", "--compat=horovod", "train_ddp.py")

    assert result.exit_code == 2
    assert "--compat" in result.stderr and "horovod" in result.stderr


def test_a_missing_script_is_refused(elasticdl: Run) -> None:
    result = elasticdl("run", "--workers=1", "nothing.py")

    assert result.exit_code == 2
    assert "nothing.py: no such script" in result.stderr


def test_a_home_directory_that_cannot_be_created_is_refused(
    elasticdl: Run, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTICDL_HOME", str(zoo / "train.csv"))

    code, message = train(elasticdl, zoo, f"--training_data={zoo}/train.csv")

    assert code == 2
    assert "set ELASTICDL_HOME to a writable place" in message


def test_predictions_are_not_written_beside_existing_files(elasticdl: Run, zoo: Path, tmp_path: Path) -> None:
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
    monkeypatch.setattr("elasticdl.jobs.preflight.find_spec", lambda name: None)

    code, message = train(elasticdl, zoo, f"--training_data={zoo}/train.csv", "--num_ps_pods=1")

    assert code == 2
    assert "no native core" in message and "install a C++ compiler" in message
    assert left_behind(home) == []


def without(*names: str) -> Callable[[str], object]:
    return lambda name: None if name in names else object()


def test_a_job_without_torch_is_refused_with_the_command_that_installs_it(
    elasticdl: Run, zoo: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elasticdl.jobs.preflight.find_spec", without("torch"))

    code, message = train(elasticdl, zoo, f"--training_data={zoo}/train.csv")

    assert code == 2
    assert message.count("\n") == 1
    assert message.startswith("error: a training job with a model written in torch needs torch, not installed in")
    assert message.endswith(f"{install_command('torch')}\n")
    assert left_behind(home) == []


def test_a_keras_job_without_tensorflow_is_refused_with_the_extra_of_keras(
    elasticdl: Run, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (zoo / "digits.py").write_text(KERAS_MODEL)
    monkeypatch.setattr("elasticdl.jobs.preflight.find_spec", without("tensorflow", "keras"))

    code, message = train(elasticdl, zoo, f"--training_data={zoo}/train.csv")

    assert code == 2
    assert "needs tensorflow and keras" in message and install_command("tensorflow") in message


def test_a_script_without_torch_is_refused(elasticdl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("train.py").write_text("import elasticdl.torch\n")
    monkeypatch.setattr("elasticdl.jobs.preflight.find_spec", without("torch"))

    result = elasticdl("run", "--workers=1", "train.py")

    assert result.exit_code == 2
    assert result.stderr.startswith("error: a script job needs torch") and install_command("torch") in result.stderr


@pytest.mark.parametrize("verb", ["train", "evaluate", "predict"])
def test_a_config_without_torch_is_refused_before_its_data_is_analysed(
    elasticdl: Run, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("ctr.yaml").write_text("{data: absent.csv, label: clicked, model: deepfm}")
    monkeypatch.setattr("elasticdl.jobs.preflight.find_spec", without("torch"))

    result = elasticdl(verb, "ctr.yaml")

    assert result.exit_code == 2
    assert "needs torch" in result.stderr and install_command("torch") in result.stderr


def predict_words(zoo: Path, *words: str) -> list[str]:
    model = ["predict", f"--model_zoo={zoo}", "--model_def=digits.forward", f"--checkpoint_dir_for_init={zoo}"]
    return [*model, "--output=out", f"--prediction_data={zoo}/train.csv", *words]


def test_an_unknown_id_column_is_refused_with_the_existing_columns(elasticdl: Run, zoo: Path) -> None:
    result = elasticdl(*predict_words(zoo, "--id_column=c"))

    assert result.exit_code == 2
    assert "--id_column): no column 'c' in the data; there are 'a', 'b'" in result.stderr


@pytest.mark.parametrize("option", ["--id_column=a", "--bad_rows=mark"])
def test_prediction_columns_are_refused_if_the_model_file_writes_the_predictions(
    elasticdl: Run, zoo: Path, option: str
) -> None:
    processor = "class PredictionOutputsProcessor:\n    def process(self, predictions, worker_id): pass\n"
    (zoo / "digits.py").write_text((zoo / "digits.py").read_text() + processor)

    result = elasticdl(*predict_words(zoo, option))

    assert result.exit_code == 2
    assert "the model file has a PredictionOutputsProcessor" in result.stderr
