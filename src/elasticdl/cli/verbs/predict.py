"""`elasticdl predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from elasticdl.cli.command import Command, job_options, strategy_option
from elasticdl.cli.submit import run_submit_verb, submit_options
from elasticdl.spec import JobKind

EXAMPLES = """
elasticdl predict --model_zoo=zoo --model_def=mnist.mnist.forward --prediction_data=new.csv \\
    --checkpoint_dir_for_init=~/.elasticdl/jobs/mnist/checkpoints --output=predictions
"""

FIRST_OPTIONS = (
    "model_zoo", "model_def", "prediction_data", "checkpoint_dir_for_init", "output", "id_column", "bad_rows",
    "num_workers",
)  # fmt: skip


@click.command("predict", cls=Command, examples=EXAMPLES, first_options=FIRST_OPTIONS)
@click.argument("file", required=False, type=click.Path(path_type=Path), metavar="[JOB.yaml]")
@submit_options
@strategy_option
@job_options("predict")
def command(file: Path | None, **values: Any) -> int:
    """Predict all records of --prediction_data with a trained model.

    Results go to the PredictionOutputsProcessor of the model file if it has one, else to --output.
    """
    return run_submit_verb(JobKind.PREDICTION, file, values)
