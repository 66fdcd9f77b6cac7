"""Models of jobs, by what their masters measured. A job of which nothing was measured has none."""

from __future__ import annotations

import logging
from functools import cache, lru_cache
from importlib.util import find_spec

from elasticdl.extras import install_command
from elasticdl.scheduler.interface import Rates
from elasticdl.scheduler.local.events import Progress
from elasticdl.scheduler.local.submission import Submission
from elasticdl.scheduler.models.logical import LogicalBatch, scales_up_to
from elasticdl.scheduler.models.throughput import Throughput, fit
from elasticdl.scheduler.snapshot import SpeedSample

_NEEDED = ("scipy", "threadpoolctl")
_log = logging.getLogger(__name__)


def rates_of(submission: Submission, progress: Progress) -> Rates | None:
    """Steps of one global batch a second. Of an adaptive job with the best batch, once its noise is known."""
    if not progress.speeds or not progress.global_batch or not _can_fit():
        return None
    ranks = submission.logical_ranks or submission.maximum
    scales: tuple[int, ...] = (max(progress.batch_scale, 1),)
    if submission.is_adaptive and progress.noise is not None:
        scales = scales_up_to(progress.most_scale)
    return LogicalBatch(_fitted(progress.speeds), progress.global_batch, ranks, scales, progress.noise)


def warm_up() -> None:
    """What fitting imports takes seconds on a busy machine: better at the start than when somebody waits."""
    if _can_fit():
        fit((SpeedSample(1, 1, 1, 1.0, 1.0),))


@lru_cache(maxsize=4096)
def _fitted(samples: tuple[SpeedSample, ...]) -> Throughput:
    """Once for the same samples: masters change theirs when a time has changed by 5 %."""
    return fit(samples)


@cache
def _can_fit() -> bool:
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        _log.warning(
            "%s missing: what masters measure is not used, jobs count as equally fast and no batch is scaled; %s",
            " and ".join(missing),
            install_command("scheduler"),
        )
    return not missing
