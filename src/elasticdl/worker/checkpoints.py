"""The checkpoints of a job: when one is due, what it says about the job, and the state that a job begins with."""

from __future__ import annotations

import hashlib
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from elasticdl import watchdog
from elasticdl.checkpoint import store
from elasticdl.checkpoint.captured_state import CapturedState
from elasticdl.data.plan import TrainingPlan
from elasticdl.spec import JobSpec
from elasticdl.storage.paths import AnyPath, parse_path
from elasticdl.worker.context import WorkerContext
from elasticdl.worker.embeddings.tables import EmbeddingTables
from elasticdl.worker.training.state import TrainingState

_log = logging.getLogger(__name__)


def is_checkpoint_due(spec: JobSpec, step: int, before: int | None = None) -> bool:
    """Whether a checkpoint is due after `step` steps, if the update led from `before` to `step`."""
    every = spec.checkpoint.every_steps
    return bool(every) and step // every > (step - 1 if before is None else before) // every


def initialize_state(
    training: TrainingState, tables: EmbeddingTables, spec: JobSpec, directory: AnyPath, run_id: str
) -> None:
    """Make the first state of a job: load its newest checkpoint or the one to start from; else the model as built."""
    with watchdog.pause_watchdog("makes the first state, or loads it"):
        captured = load_initial_state(spec, directory, run_id)
        if captured is None:
            tables.put_initial_rows()
            training.begin()
        else:
            training.load(captured)


def load_initial_state(spec: JobSpec, directory: AnyPath, run_id: str) -> CapturedState | None:
    """The job's newest checkpoint, or the one to start from; None if the job starts from the beginning."""
    newest = store.read_newest(directory)
    if newest is not None and (spec.checkpoint.resume or newest[1].get("run") == run_id):
        captured, metadata, path = newest
    elif spec.checkpoint.init_from:
        captured, metadata, path = store.find_checkpoint(
            parse_path(spec.checkpoint.init_from, spec.timing.store_retry_s)
        )
    else:
        return None
    _log.info("state of step %d from %s", captured.step, path)
    _warn_of_changed_numerics(metadata, spec)
    return captured


def rescue_directories(context: WorkerContext) -> tuple[Path, ...]:
    """Where the last state is saved if its checkpoint cannot be written. None in a pod: nothing would outlive it."""
    spec = context.spec
    if spec.cluster is not None:
        return ()
    return (context.master.directory.root / "rescued", Path(tempfile.gettempdir()) / f"elasticdl-{spec.name}-rescued")


def checkpoint_run_id(context: WorkerContext) -> str:
    """The id of this run in its checkpoints."""
    return hashlib.sha256(context.master.token.encode()).hexdigest()[:16]


def checkpoint_metadata(spec: JobSpec, plan: TrainingPlan, run_id: str) -> dict[str, Any]:
    """The metadata of a checkpoint: all settings of the job that the bits of the further training depend on."""
    return {
        "job": spec.name,
        "run": run_id,
        "seed": plan.seed,
        "records_per_epoch": plan.records_per_epoch,
        "global_batch_size": plan.global_batch,
        "logical_ranks": plan.logical_ranks,
        "reproducible": spec.plan.reproducible,
        **_numerics(spec),
        "model_def": spec.model.definition if spec.model else "",
        "model_params": spec.model.params if spec.model else {},
    }


def _numerics(spec: JobSpec) -> dict[str, Any]:
    return {
        "precision": spec.plan.precision,
        "micro_batch_size": spec.plan.micro_batch_size,
        "threads": spec.workers.threads,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "tensorflow": _tensorflow_version(),
    }


def _warn_of_changed_numerics(metadata: dict[str, Any], spec: JobSpec) -> None:
    current = {"seed": spec.plan.seed, "logical_ranks": spec.plan.logical_ranks, **_numerics(spec)}
    for name, value in current.items():
        if metadata.get(name, value) != value:
            _log.warning(
                "the checkpoint was made with %s %s, now it is %s: the bits will differ", name, metadata[name], value
            )


def _tensorflow_version() -> str:
    """The version of TensorFlow that this worker has loaded; empty in a job that uses only torch."""
    return str(getattr(sys.modules.get("tensorflow"), "__version__", ""))
