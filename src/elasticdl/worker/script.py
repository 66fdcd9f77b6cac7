"""Runs a user's own script in the worker: `elasticdl run train.py`."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from elasticdl.errors import ElasticDLError, LossNotFinite, PermanentError, SpecError
from elasticdl.model import script_source
from elasticdl.worker.assembly import ElasticTraining
from elasticdl.worker.context import WorkerContext
from elasticdl.worker.shutdown import fail_on_loss, finish_training, save_before_crash
from elasticdl.worker.training.numerics import configure_numerics

_context: WorkerContext | None = None
_training: ElasticTraining | None = None


def run_script(context: WorkerContext) -> str:
    """Run the script as `__main__`, which takes part from its call of `elasticdl.torch.join` on; the exit reason."""
    global _context
    script = context.spec.script
    assert script is not None
    script_source.check_in_worker(
        Path(script.path), script_source.check_joins, is_in_image=context.spec.cluster is not None
    )
    _context = context
    sys.argv = [script.path, *script.arguments]
    sys.path[:] = add_script_directory(sys.path, Path(script.path).resolve().parent)
    configure_numerics(context.spec.workers.threads, context.spec.workers.device, context.spec.plan.reproducible)
    try:
        _run_to_end(script.path)
    except Exception as exc:
        if _training is not None and not isinstance(exc, PermanentError):
            save_before_crash(context, _training, exc)
        raise
    if _training is None:
        raise SpecError(f"{script.path} ended without calling elasticdl.torch.join, so nothing was trained")
    if not _training.engine.has_joined:
        raise SpecError(
            f"{script.path} called elasticdl.torch.join, but never iterated over the job: `for step in job`"
        )
    failure = _training.engine.failure
    if isinstance(failure, LossNotFinite):
        fail_on_loss(context, _training, failure)
    if failure is not None:
        raise failure
    _training.engine.finish_loop_exit()
    return finish_training(context, _training, lambda path: None)


def add_script_directory(path: Sequence[str], directory: Path) -> list[str]:
    """`path` with the script's directory after Python's own library and before the installed packages.

    As with `python train.py`, the script imports its neighbours even if an installed package has the same name. A
    neighbour called `random.py` or `queue.py` does not replace Python's, because torch and ElasticDL import Python's,
    sometimes late.
    """
    library = Path(os.__file__).parent
    own = {str(library), str(library / "lib-dynload")}
    index = max((position for position, entry in enumerate(path, start=1) if entry in own), default=0)
    return [*path[:index], str(directory), *path[index:]]


def _run_to_end(path: str) -> None:
    """Run the script to its end. A failure of the training itself is left to the caller."""
    try:
        runpy.run_path(path, run_name="__main__")
    except LossNotFinite:
        if _training is None:
            raise
    except SystemExit as exc:  # `sys.exit(main())` is an ordinary end
        if exc.code not in (None, 0):
            raise ElasticDLError(f"{path} exited with {exc.code!r}") from exc


def current_context() -> WorkerContext | None:
    """The context of this process; None if it was not started as a worker of a job."""
    return _context


def register_training(assembly: ElasticTraining) -> None:
    """The script has joined with this training, which `run_script` finishes at its end."""
    global _training
    if _training is not None:
        raise SpecError("elasticdl.torch.join was called twice; a script is one training run")
    _training = assembly
