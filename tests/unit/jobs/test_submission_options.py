"""The typed options of `elasticdl.submit` are those of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

import elasticdl
from elasticdl.errors import SpecError
from elasticdl.jobs import submission_options as generated
from elasticdl.jobs.options import parse_options
from tests.unit.jobs import submission_options as generator


def test_the_typed_options_are_generated_from_the_table_of_options() -> None:
    written = Path(generated.__file__).read_text()

    assert written == generator.render(), "run `python -m tests.unit.jobs.submission_options`, see its first lines"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"num_worker": 2}, "no such option --num_worker; did you mean --num_workers?"),
        ({"lr": 0.1}, "no such option --lr; did you mean --learning_rate?"),
        ({"use_async": True}, "--use_async is not an option here: use --ps_mode=async"),
        (
            {"zzz": 1, "sede": 1},
            "2 options are wrong:\n  no such option --zzz; see docs/api.md\n  no such option --sede",
        ),
        ({"script": "train.py", "num_epochs": 2}, "--num_epochs is not an option here: the script sets it"),
        ({"kind": "evaluation", "training_data": "x"}, "no such option --training_data; see"),
        ({"kind": "evaluate"}, "kind: expected training, evaluation, prediction, script; received 'evaluate'; did you"),
        ({"on": "kubernets"}, "--on: expected local or kubernetes; received 'kubernets'; did you mean 'kubernetes'?"),
        ({"priority": 3}, "--priority is for the queue of this machine: give --queue, too"),
        ({"workers": "none", "script": "train.py"}, "--workers: expected a number such as 2, or min:max such as 1:4"),
        ({"arguments": ["--lr"], "kind": "script"}, "which script are they for?"),
        ({"model_def": "a.b", "context": "c"}, "--context is for jobs on Kubernetes"),
        ({"model_def": "a.b", "num_epochs": "many"}, "plan.epochs (--num_epochs): expected a whole number"),
    ],
)
def test_a_wrong_option_is_refused_in_the_words_of_the_command_line(options: dict[str, object], expected: str) -> None:
    with pytest.raises(SpecError) as refusal:
        elasticdl.submit(**options)  # type: ignore[arg-type]

    assert expected in str(refusal.value)


def test_a_value_that_is_not_a_job_description_is_refused() -> None:
    with pytest.raises(SpecError, match="expected the path of a YAML file, a mapping, a JobSpec or None; received int"):
        elasticdl.submit(7)  # type: ignore[arg-type]


def test_python_values_and_command_line_words_give_the_same_job() -> None:
    words = parse_options({
        "model_params": ("a=1;b=[1,2]",), "columns": "a, b", "envs": "A=1,B=2", "training_data": "x.csv",
        "volume": "claim_name=c,mount_path=/d", "shuffle": False,
    })  # fmt: skip
    values = parse_options({
        "model_params": {"a": 1, "b": [1, 2]}, "columns": ("a", "b"), "envs": {"A": "1", "B": "2"},
        "training_data": Path("x.csv"), "volume": [{"claim_name": "c", "mount_path": "/d"}], "shuffle": False,
        "seed": None,
    })  # fmt: skip

    assert words == values
