"""`elasticdl`: one verb, one file. A verb's file is imported only when it is used."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from itertools import takewhile
from typing import Any, NoReturn

import click

import elasticdl
from elasticdl.errors import ElasticDLError

EXIT_INTERRUPTED = 130

# The help lists them in this order, under these headings, without importing any.
HELP_SECTIONS = {
    "Train and use models": {
        "train": "Train a model with workers that come and go.",
        "run": "Run a training script of your own elastically.",
        "evaluate": "Evaluate a trained model.",
        "predict": "Predict with a trained model.",
        "zoo": "List models, write a starter model, build images of models for a cluster.",
        "ctr": "Train click-through-rate models from a config alone.",
        "features": "Analyze columns of data, propose transforms, detect drift.",
    },
    "Look after jobs": {
        "jobs": "List the jobs of this machine and of a cluster.",
        "status": "Show the status of a job: progress, workers, events.",
        "logs": "Show what the processes of a job wrote.",
        "scale": "Change the number of workers or parameter servers of a job.",
        "stop": "Stop a job, with a checkpoint.",
        "journal": "Check whether the journal of a job's master is intact.",
        "timeline": "Draw when each worker trained, and the loss, as a PNG.",
    },
    "Share machines": {
        "doctor": "Check this installation and a cluster, and say how to fix what is wrong.",
        "scheduler": "Share this machine among queued jobs: start, grow, shrink and preempt them.",
        "simulate": "Try scheduling policies on a trace of jobs; forecast when a job would start.",
        "experiment": "Repeat the experiments of the original ElasticDL, simulated or real.",
    },
}
JOB_VERBS = ("train", "run", "evaluate", "predict")
# With these a verb starts no job, or not on this machine, or later.
FLAGS_ELSEWHERE = {"--help", "-h", "--dry-run", "--yaml", "--queue", "--image-name", "--on", "--context"}
VERBS = {name: words for verbs in HELP_SECTIONS.values() for name, words in verbs.items()}


class RootGroup(click.Group):
    """Imports verbs lazily; turns errors into one line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        command = import_module(f"elasticdl.cli.verbs.{name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, verbs in HELP_SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl(list(verbs.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in VERBS and not name.startswith("-"):
            from elasticdl.spelling import did_you_mean

            raise click.UsageError(f"no such command {name!r}" + did_you_mean(name, VERBS, "; see `elasticdl --help`"))
        return super().resolve_command(ctx, args)

    def main(self, args: Sequence[str] | None = None, *unused: Any, **extra: Any) -> NoReturn:
        words = list(sys.argv[1:] if args is None else args)
        debug = "--debug" in takewhile(lambda word: word.startswith("-"), words)
        extra |= {"prog_name": "elasticdl", "standalone_mode": False, "obj": words}
        try:
            code = super().main(words, **extra)
        except click.ClickException as exc:
            code = exc.exit_code
            _print_error(exc.format_message(), debug)
        except ElasticDLError as exc:
            code = exc.exit_code
            _print_error(str(exc), debug)
        except ModuleNotFoundError as exc:
            from elasticdl.extras import is_optional_module, missing_module_error

            module = str(exc.name).partition(".")[0]
            if not is_optional_module(module):
                raise
            error = missing_module_error(f"elasticdl {words[0]}", module)
            code = error.exit_code
            _print_error(str(error), debug)
        except (click.Abort, KeyboardInterrupt):
            code = EXIT_INTERRUPTED
        except BrokenPipeError:
            # The reader of our output has gone, as `| head` does.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 1
        sys.exit(code if isinstance(code, int) else 0)


def _print_error(message: str, debug: bool) -> None:
    if debug:
        traceback.print_exc()
    click.echo(f"{click.style('error:', fg='red', bold=True)} {message}", err=True)


@click.group(
    cls=RootGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda token: token.replace("_", "-"),
        "max_content_width": 110,
    },
)
@click.version_option(elasticdl.__version__, prog_name="elasticdl", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Elastic distributed deep learning: workers come and go, the job goes on and ends with the same model.

    \b
    Begin with a starter model, its data and its job:
      elasticdl zoo init starter && cd starter && elasticdl train job.yaml
    """


def main() -> NoReturn:
    if starts_job_here(sys.argv[1:]):
        from elasticdl.launcher.local import prepared

        prepared.prepare_launcher()
    try:
        cli.main()
    except SystemExit as exc:
        if threading.active_count() == 1:
            raise
        exit_at_once(exc.code if isinstance(exc.code, int) else 1)


def starts_job_here(words: Sequence[str]) -> bool:
    """Whether the command is likely to need torch soon: it starts a job on this machine."""
    # What follows the script of `run` is the script's.
    own_words = takewhile(lambda word: not word.endswith(".py"), words) if words[:1] == ["run"] else words
    flags = {word.partition("=")[0].replace("_", "-") for word in own_words}
    return bool(words) and words[0] in JOB_VERBS and not flags & FLAGS_ELSEWHERE


def exit_at_once(code: int) -> NoReturn:
    """Ends at once. In an orderly end, a thread that is inside grpc at this moment would abort the process."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
