"""`elasticdl train`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from elasticdl.cli.command import Command, job_options, strategy_option
from elasticdl.cli.submit import run_submit_verb, submit_options
from elasticdl.spec import JobKind

EXAMPLES = """
elasticdl train --model_zoo=zoo --model_def=mnist.mnist.forward --training_data=train.csv --num_workers=2
elasticdl train job.yaml --num_epochs=3
elasticdl train job.yaml --dry-run
elasticdl train job.yaml --queue --min_workers=1 --max_workers=8 --priority=10
elasticdl train --resume --job_name=mnist-20261115-1307-x3
"""

FIRST_OPTIONS = (
    "model_zoo", "model_def", "training_data", "validation_data", "num_epochs", "minibatch_size", "num_workers",
    "output", "job_name",
)  # fmt: skip


@click.command("train", cls=Command, examples=EXAMPLES, first_options=FIRST_OPTIONS)
@click.argument("file", required=False, type=click.Path(path_type=Path), metavar="[JOB.yaml]")
@submit_options
@strategy_option
@job_options("train")
def command(file: Path | None, **values: Any) -> int:
    """Train a model with workers that come and go.

    An option counts more than JOB.yaml, and JOB.yaml more than the default.
    Options may be written with _ or -. Ctrl-C stops the job with a checkpoint.

    With --queue the job waits for `elasticdl scheduler`, which gives it between --min_workers and --max_workers
    workers, more or fewer as other jobs come and go. The command returns at once.
    """
    return run_submit_verb(JobKind.TRAINING, file, values)
