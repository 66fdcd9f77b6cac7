"""The worker process: `python -m elasticdl.worker`, started by the launcher."""

from __future__ import annotations

import atexit
import io
import logging
import os
import sys
import threading
import traceback
from typing import TYPE_CHECKING

from elasticdl import descriptors, log, stacks, vital
from elasticdl.errors import DataUnavailable, ElasticDLError, PermanentError, is_job_error
from elasticdl.faults import Faults
from elasticdl.signals import notify_on_sigterm
from elasticdl.spec import JobKind, JobSpec
from elasticdl.spec.directory import JobDirectory
from elasticdl.spec.env import WorkerEnv

if TYPE_CHECKING:
    from elasticdl.worker.context import WorkerContext

_EXIT_FUNCTIONS_TIMEOUT_S = 30.0

_log = logging.getLogger(__name__)


def main() -> int:
    descriptors.raise_descriptor_limit()
    # Each line is written when it is printed, although the output is a file or a pipe.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    env = WorkerEnv.from_environ(os.environ)
    directory = JobDirectory(env.job_directory)
    spec = directory.load_spec()
    log.configure_logging(env.worker, spec.log_level)
    stacks.dump_on_signal()
    vital.end_process_on_failure(
        directory.exit_reason_file(env.worker), Faults.parse(env.faults, env.worker).inject_in_thread
    )
    # Imported here: the agent does without torch, which takes longer to import than the agent to start.
    if spec.restarts_script:
        from elasticdl.worker.agent import run_agent

        return run_agent(env, spec)
    return _run_job(env, spec)


def _run_job(env: WorkerEnv, spec: JobSpec) -> int:
    from elasticdl.worker.context import WorkerContext
    from elasticdl.worker.leases.inference import run_inference
    from elasticdl.worker.script import run_script
    from elasticdl.worker.train import train_model_file

    context = WorkerContext.open(env, spec)
    notify_on_sigterm(context.master.leave)
    run_by_kind = {
        JobKind.TRAINING: train_model_file,
        JobKind.SCRIPT: run_script,
        JobKind.EVALUATION: run_inference,
        JobKind.PREDICTION: run_inference,
    }
    try:
        exit_reason = run_by_kind[spec.kind](context)
    except DataUnavailable as exc:  # before it trained: others may have read what they need, and their state is kept
        return _report_failure(context, str(exc), wrong_job=False, permanent=False)
    except ElasticDLError as exc:
        is_wrong = is_job_error(exc)
        return _report_failure(
            context, str(exc), wrong_job=is_wrong, permanent=is_wrong or isinstance(exc, PermanentError)
        )
    except Exception as exc:
        _log.error("%s", traceback.format_exc())
        notes = "".join(f"; {note}" for note in getattr(exc, "__notes__", ()))
        return _report_failure(context, f"{type(exc).__name__}: {exc}{notes}", wrong_job=False, permanent=False)
    _log.info("exit reason: %s", exit_reason)
    context.close(exit_reason)
    if spec.kind is JobKind.SCRIPT:
        _run_exit_functions()
    return 0


def _report_failure(context: WorkerContext, message: str, *, wrong_job: bool, permanent: bool) -> int:
    _log.error("%s", message)
    context.master.report_failure(message, wrong_job=wrong_job, permanent=permanent)
    context.close(message)
    return 2 if wrong_job else 1


def _run_exit_functions() -> None:
    """Run what a script registered with `atexit`, trackers for example; for a limited time, as others may hang."""
    watch = threading.Timer(_EXIT_FUNCTIONS_TIMEOUT_S, os._exit, (0,))
    watch.daemon = True
    watch.start()
    atexit._run_exitfuncs()
    watch.cancel()


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    sys.stdout.flush()
    # Threads may be blocked in a dropped group or in the user's code: nothing is left to wait for.
    os._exit(code)
