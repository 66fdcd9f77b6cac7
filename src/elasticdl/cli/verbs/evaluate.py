"""`elasticdl evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from elasticdl.cli.command import Command, job_options, strategy_option
from elasticdl.cli.submit import run_submit_verb, submit_options
from elasticdl.spec import JobKind

EXAMPLES = """
elasticdl evaluate --model_zoo=zoo --model_def=mnist.mnist.forward --validation_data=test.csv \\
    --checkpoint_dir_for_init=~/.elasticdl/jobs/mnist/checkpoints
"""

FIRST_OPTIONS = (
    "model_zoo",
    "model_def",
    "validation_data",
    "checkpoint_dir_for_init",
    "minibatch_size",
    "num_workers",
)


@click.command("evaluate", cls=Command, examples=EXAMPLES, first_options=FIRST_OPTIONS)
@click.argument("file", required=False, type=click.Path(path_type=Path), metavar="[JOB.yaml]")
@submit_options
@strategy_option
@job_options("evaluate")
def command(file: Path | None, **values: Any) -> int:
    """Evaluate a trained model on all records of --validation_data.

    The model comes from a checkpoint. The metrics are the loss and those of eval_metrics_fn.
    """
    return run_submit_verb(JobKind.EVALUATION, file, values)
