"""Fits a rate model to what a job's master measured; a job without measurements has none."""

from __future__ import annotations

import logging
from functools import cache, lru_cache
from importlib.util import find_spec

from elasticdl.extras import install_command
from elasticdl.scheduler.accounts.events import JobProgress
from elasticdl.scheduler.accounts.submission import JobSubmission
from elasticdl.scheduler.interface import RateModel
from elasticdl.scheduler.models.goodput import LogicalBatchModel, candidate_batch_scales
from elasticdl.scheduler.models.throughput import ThroughputModel, fit_throughput
from elasticdl.scheduler.snapshot import SpeedSample

_REQUIRED_MODULES = ("scipy", "threadpoolctl")
_log = logging.getLogger(__name__)


def fit_rates(submission: JobSubmission, progress: JobProgress) -> RateModel | None:
    """Returns steps of one global batch per second; with the best batch for an adaptive job whose noise is known."""
    if not progress.speeds or not progress.global_batch or not _can_fit():
        return None
    ranks = submission.logical_ranks or submission.max_workers
    scales: tuple[int, ...] = (max(progress.batch_scale, 1),)
    if submission.is_adaptive and progress.noise is not None:
        scales = candidate_batch_scales(progress.max_batch_scale)
    return LogicalBatchModel(_fit_cached(progress.speeds), progress.global_batch, ranks, scales, progress.noise)


def warm_up_fitting() -> None:
    """Imports what fitting needs at the start, because that takes seconds on a busy machine."""
    if _can_fit():
        fit_throughput((SpeedSample(1, 1, 1, 1.0, 1.0),))


@lru_cache(maxsize=4096)
def _fit_cached(samples: tuple[SpeedSample, ...]) -> ThroughputModel:
    """Fits once for the same samples; masters change theirs only when a time has changed by 5 %."""
    return fit_throughput(samples)


@cache
def _can_fit() -> bool:
    missing = [name for name in _REQUIRED_MODULES if find_spec(name) is None]
    if missing:
        _log.warning(
            "%s missing: what masters measure is not used, jobs count as equally fast and no batch is scaled; %s",
            " and ".join(missing),
            install_command("scheduler"),
        )
    return not missing
