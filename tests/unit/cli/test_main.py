"""The command line as a whole: help, errors, exit codes."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click
import pytest

from elasticdl.cli.main import VERBS, starts_job_here
from elasticdl.spec import options
from tests.unit.cli.conftest import Run


@pytest.mark.parametrize(
    "verb", [*VERBS, "zoo init", "zoo list", "zoo show", "zoo build", "zoo push", "journal verify"]
)
def test_every_verb_has_help_with_examples(elasticdl: Run, verb: str) -> None:
    result = elasticdl(*verb.split(), "--help")

    assert result.exit_code == 0
    assert "Usage: elasticdl" in result.output
    assert verb in ("zoo", "ctr", "features", "journal") or "Examples:" in result.output  # groups of verbs


def test_a_misspelt_command_is_refused_with_the_nearest_one(elasticdl: Run) -> None:
    result = elasticdl("trian")

    assert (result.exit_code, result.stderr) == (2, "error: no such command 'trian'; did you mean 'train'?\n")


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("--modle-def=x", "no such option --modle_def; did you mean --model_def?"),
        ("--no_shufle", "no such option --no_shufle; did you mean --no-shuffle?"),
        ("--lr=1", "no such option --lr; did you mean --learning_rate?"),
        ("--batch_size=1", "no such option --batch_size; did you mean --minibatch_size or --global_batch_size?"),
        ("--port=1", "no such option --port; did you mean --metrics_port?"),
        ("--pod=1", "no such option --pod; see `elasticdl train --help`"),
        ("--zzz", "no such option --zzz; see `elasticdl train --help`"),
        ("--use_async", "--use_async is not an option here: use --ps_mode=async"),
        ("--worker-image=x", "--worker_image is not an option here: all pods have one image: use --image_name"),
    ],
)
def test_an_unknown_option_is_refused_with_what_to_do(elasticdl: Run, word: str, expected: str) -> None:
    result = elasticdl("train", word)

    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {expected}")
    assert result.stderr.count("\n") == 1


def test_all_unknown_options_are_reported_at_once(elasticdl: Run) -> None:
    result = elasticdl(
        "train", "--sede", "1", "--num_epochs=2", "--use_async", "--zzz=1", "--zzz=2", "job.yaml", "--qq"
    )

    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        "error: 4 options are wrong:",
        "  no such option --sede; did you mean --seed?",
        "  --use_async is not an option here: use --ps_mode=async",
        "  no such option --zzz; see `elasticdl train --help`",
        "  no such option --qq; see `elasticdl train --help`",
    ]


def test_options_after_a_script_are_the_scripts_own(elasticdl: Run) -> None:
    result = elasticdl("run", "--zzz", "1", "train.py", "--qq")

    assert result.stderr.startswith("error: no such option --zzz; see") and "qq" not in result.stderr


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("train job.yaml", True),
        ("run --workers 1:4 train.py --epochs 3", True),
        ("run --workers 2 train.py --on kubernetes --help", True),  # the script's own options
        ("run --resume --job_name=a", True),
        ("run --on kubernetes train.py", False),
        ("run --dry_run train.py", False),
        ("run --help", False),
        ("train job.yaml --queue", False),
        ("status", False),
        ("", False),
    ],
)
def test_a_launcher_is_prepared_if_the_command_starts_a_job_on_this_machine_at_once(line: str, expected: bool) -> None:
    assert starts_job_here(line.split()) is expected


def test_tracebacks_are_shown_only_with_debug(elasticdl: Run) -> None:
    plain, debug = elasticdl("status", "nothing"), elasticdl("--debug", "status", "nothing")

    assert "Traceback" not in plain.stderr
    assert "Traceback" in debug.stderr
    assert plain.exit_code == debug.exit_code == 2


def test_the_reference_names_every_option_and_every_verb() -> None:
    reference = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()

    missing = [option.flag for option in options.OPTIONS if f"`{option.flag}`" not in reference]

    assert missing == []
    assert [verb for verb in VERBS if f"`elasticdl {verb} " not in reference] == []


@pytest.mark.parametrize("verb", VERBS)
def test_the_reference_names_every_option_of_a_verb(verb: str) -> None:
    reference = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    command = import_module(f"elasticdl.cli.verbs.{verb}").command
    flags = {flag for param in command.params if isinstance(param, click.Option) for flag in param.opts}

    assert [flag for flag in sorted(flags) if flag.startswith("--") and flag not in reference] == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "--precision=bf16", "train.py"], "the script sets it, with torch.autocast"),
        (["run", "--micro_batch_size=2", "train.py"], "the script sets it, with step.backward(loss, records=n)"),
        (["train", "--model_def=a.b", "--precision=half"], "plan.precision (--precision)"),
        (["train", "--model_def=a.b", "--precision=fp16", "--num_ps_pods=1"], "use --precision=bf16"),
        (["train", "--model_def=a.b", "--micro_batch_size=2", "--num_ps_pods=1"], "rows are pushed once per batch"),
    ],
)
def test_impossible_precisions_and_micro_batches_are_refused_at_once(
    elasticdl: Run, words: list[str], expected: str
) -> None:
    result = elasticdl(*words)

    assert result.exit_code == 2 and expected in result.stderr
