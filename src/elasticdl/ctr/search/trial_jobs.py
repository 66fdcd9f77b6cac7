"""Trials of a search as jobs of this machine, queued if a scheduler runs, else launched directly."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from elasticdl import jobs
from elasticdl.ctr.job_description import build_job_description
from elasticdl.ctr.search.loop import TrialProgress
from elasticdl.ctr.search.space import apply_values
from elasticdl.errors import ElasticDLError, JobNotFound, SpecError
from elasticdl.jobs import home, queueing, submission
from elasticdl.jobs.description import JobRequest
from elasticdl.jobs.interface import SubmissionReporter
from elasticdl.jobs.lookup import LOCAL
from elasticdl.jobs.submission import ResolvedJob
from elasticdl.spec import JobKind, Phase

if TYPE_CHECKING:
    from elasticdl.ctr.build import BuildResult
    from elasticdl.ctr.config import CtrConfig
    from elasticdl.ctr.search.study import Trial

METRIC = "logloss"
TRIAL_PRIORITY = -10  # below jobs that a user waits for


class TrialJobs:
    """Runs trials as jobs NAME-trial-007. Jobs without a scheduler end when this process ends, in any way."""

    def __init__(self, config: CtrConfig, built: BuildResult, file: Path, parallel: int) -> None:
        self._config = config
        self._built = built
        self._file = file
        self._parallel = parallel
        # Only this process holds the writing end: when it ends, launchers see the pipe close and stop their jobs.
        self._reading, self._writing = os.pipe()

    def close(self) -> None:
        os.close(self._reading)
        os.close(self._writing)

    # ---- the interface `search.loop.TrialExecutor`

    def start(self, trial: Trial, *, is_new: bool) -> None:
        directory, queue = home.job_directory(trial.job), home.local_queue()
        is_served = queue.is_served()
        exists = directory.root.exists()
        if exists:
            if is_new or not directory.spec.exists() or not self._is_ours(jobs.find(trial.job, on=LOCAL), trial):
                raise SpecError(
                    f"job {trial.job!r} already exists in {directory.root} and does not belong to this search; "
                    "name the trials differently with --job_name, or remove the job"
                )
            if is_served and queue.has_job(trial.job) and trial.job not in queue.stop_requests():
                return  # the scheduler will continue it
            job = jobs.find(trial.job, on=LOCAL)
            status = job.quick_status()
            if status.is_over and status.phase is not Phase.STOPPED and not job.has_processes():
                return  # it ended while no search watched it
            job.kill(reason="its search ended")
            queue.remove(trial.job)
        resolved = self.trial_job(trial, is_resumed=exists, is_queued=is_served)
        try:
            submission.launch_job(resolved, SubmissionReporter(), attached_fd=self._reading)
        except ElasticDLError:
            if not directory.result.exists():
                raise  # otherwise the master or the scheduler refused this trial, and its result has the reason

    def poll(self, trial: Trial) -> TrialProgress:
        try:
            job = jobs.find(trial.job, on=LOCAL)
            # Checked first, so that what a job writes at its end is read afterwards.
            status = job.quick_status()
            has_ended = status.is_over and not job.has_processes()
            reports = read_losses(job)
        except JobNotFound as exc:
            return TrialProgress((), Phase.FAILED, str(exc))
        if has_ended:
            return TrialProgress(reports, status.phase, "" if status.phase is Phase.SUCCEEDED else status.reason)
        return TrialProgress(reports, Phase.WAITING if status.phase is Phase.WAITING else Phase.RUNNING)

    def stop(self, trial: Trial) -> None:
        jobs.find(trial.job, on=LOCAL).kill(reason="by its search: pruned, or interrupted")

    def clean_up(self, trial: Trial) -> None:
        directory = home.job_directory(trial.job)
        for path in (directory.root / "checkpoints", directory.index):
            shutil.rmtree(path, ignore_errors=True)

    # ---- implementation

    def trial_job(self, trial: Trial, *, is_resumed: bool, is_queued: bool) -> ResolvedJob:
        """Returns an ordinary job. Searched values are parameters, so that all trials share one model directory."""
        config = apply_values(self._config, trial.values)
        described = build_job_description(config, self._built.directory, self._built.rows)
        described["model"]["params"] = dict(config.params)
        described["name"] = trial.job
        del described["output"]  # best.yaml trains the best one again
        checkpoint = described.setdefault("checkpoint", {})
        checkpoint.pop("directory", None)  # each trial has its own
        checkpoint["resume"] = is_resumed
        request = JobRequest(
            JobKind.TRAINING,
            described,
            {},
            file=self._file,
            queue="" if is_queued else None,
            priority=TRIAL_PRIORITY if is_queued else None,
            defaults=queueing.QUEUED_JOB_DEFAULTS if self._parallel > 1 else {},
        )
        return submission.resolve_request(request)

    def _is_ours(self, job: jobs.Job, trial: Trial) -> bool:
        existing, ours = job.spec, self.trial_job(trial, is_resumed=False, is_queued=False).spec
        return existing.model == ours.model and existing.plan == ours.plan


def read_losses(job: jobs.Job) -> tuple[float, ...]:
    """Returns the logloss of each evaluation, in order, including the earlier runs of a resumed job."""
    return tuple(evaluation.metrics[METRIC] for evaluation in job.evaluations() if METRIC in evaluation.metrics)
