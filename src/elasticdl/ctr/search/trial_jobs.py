"""Trials of a search as jobs of this machine, queued if a scheduler runs, else launched directly."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

from elasticdl.ctr.job_description import build_job_description
from elasticdl.ctr.search.loop import TrialProgress
from elasticdl.ctr.search.space import apply_values
from elasticdl.errors import SpecError
from elasticdl.jobs import history, home, queueing, submission
from elasticdl.jobs.description import describe_job
from elasticdl.jobs.interface import SubmissionReporter
from elasticdl.jobs.local import kill_job
from elasticdl.spec import JobKind, JobSpec
from elasticdl.spec.directory import JobDirectory, read_json

if TYPE_CHECKING:
    from elasticdl.ctr.build import BuildResult
    from elasticdl.ctr.config import CtrConfig
    from elasticdl.ctr.search.study import Trial

METRIC = "logloss"
TRIAL_PRIORITY = -10  # below jobs that people wait for
STOPPED_PHASE = "stopped"
LAUNCHER_START_TIMEOUT_S = 30.0  # a launcher lives by then
POLL_S = 0.05


class TrialJobs:
    """Jobs NAME-trial-007. Those that are no scheduler's end with us, however we end: see `process.start`."""

    def __init__(self, config: CtrConfig, built: BuildResult, file: Path, parallel: int) -> None:
        self._config = config
        self._built = built
        self._file = file
        self._parallel = parallel
        self._launchers: dict[int, int] = {}
        # The other end is held by us alone: when we are gone, by whatever, launchers see it close and stop their jobs.
        self._reading, self._writing = os.pipe()

    def close(self) -> None:
        os.close(self._reading)
        os.close(self._writing)

    # ---- as `search.Jobs`

    def start(self, trial: Trial, *, is_new: bool) -> None:
        directory, queue = home.job_directory(trial.job), home.local_queue()
        is_served = queue.is_served()
        is_there = directory.root.exists()
        if is_there:
            if is_new or not self._is_ours(directory, trial):
                raise SpecError(
                    f"job {trial.job!r} exists already in {directory.root}, and is not of this search; "
                    "give its trials another name with --job_name, or remove it"
                )
            if is_served and queue.has_job(trial.job) and trial.job not in queue.stop_requests():
                return  # the scheduler goes on with it
            if _is_over(directory) and (read_json(directory.result) or {}).get("phase") != STOPPED_PHASE:
                return  # it ended while nobody looked
            _kill_trial(directory, "its search ended")
            queue.remove(trial.job)
        spec = self.trial_spec(trial, is_resumed=is_there, is_queued=is_served)
        if is_served:
            queueing.enqueue_job(spec, "", TRIAL_PRIORITY, SubmissionReporter())
        else:
            self._launch(trial, spec)

    def poll(self, trial: Trial) -> TrialProgress:
        directory = home.job_directory(trial.job)
        # First whether it is over: what it wrote at its end is read after that.
        is_over = _is_over(directory)
        result = read_json(directory.result) or {}
        reports = read_losses(directory)
        if is_over:
            self._reap(trial)
            phase = str(result.get("phase") or "failed")
            reason = str(result.get("reason") or "its processes are gone and left no result")
            return TrialProgress(reports, phase, "" if phase == "succeeded" else reason)
        is_waiting = home.local_queue().has_job(trial.job) and not home.is_alive(directory)
        return TrialProgress(reports, "waiting" if is_waiting else "running")

    def stop(self, trial: Trial) -> None:
        directory = home.job_directory(trial.job)
        _await_launcher_record(directory, self._launchers.get(trial.number))
        _kill_trial(directory, "by its search: pruned, or interrupted")
        self._reap(trial)

    def clean_up(self, trial: Trial) -> None:
        directory = home.job_directory(trial.job)
        for path in (directory.root / "checkpoints", directory.index):
            shutil.rmtree(path, ignore_errors=True)

    # ---- how

    def trial_spec(self, trial: Trial, *, is_resumed: bool, is_queued: bool) -> JobSpec:
        """An ordinary job. What is searched comes as parameters, so that all trials share one directory."""
        config = apply_values(self._config, trial.values)
        described = build_job_description(config, self._built.directory, self._built.rows)
        described["model"]["params"] = dict(config.params)
        described["name"] = trial.job
        del described["output"]  # the best is trained again, by best.yaml
        checkpoint = described.setdefault("checkpoint", {})
        checkpoint.pop("directory", None)  # each has its own
        checkpoint["resume"] = is_resumed
        return describe_job(
            JobKind.TRAINING,
            described,
            {},
            file=self._file,
            working_directory=self._file.absolute().parent,
            now=datetime.now(),
            random=SystemRandom(),
            directory_of=home.job_directory,
            defaults=queueing.QUEUED_JOB_DEFAULTS if is_queued or self._parallel > 1 else {},
        )

    def _launch(self, trial: Trial, spec: JobSpec) -> None:
        from elasticdl.launcher.local import processes

        directory = submission.prepare_directory(spec, SubmissionReporter())
        self._launchers[trial.number] = processes.start_launcher(directory, attached_fd=self._reading)

    def _is_ours(self, directory: JobDirectory, trial: Trial) -> bool:
        if not directory.spec.exists():
            return False
        existing, ours = directory.load_spec(), self.trial_spec(trial, is_resumed=False, is_queued=False)
        return existing.model == ours.model and existing.plan == ours.plan

    def _reap(self, trial: Trial) -> None:
        """Launchers are our children."""
        pid = self._launchers.get(trial.number)
        if pid is not None:
            with suppress(ChildProcessError):
                if not os.waitpid(pid, os.WNOHANG)[0]:
                    return
            del self._launchers[trial.number]


def read_losses(directory: JobDirectory) -> tuple[float, ...]:
    """The logloss of each evaluation, in order. A job that was interrupted and went on has its logs in pieces."""
    pieces = sorted(directory.root.glob("previous-[0-9]*"), key=lambda path: int(path.name.rpartition("-")[2]))
    events = [event for piece in (*pieces, directory.root) for event in history.read_events(JobDirectory(piece))]
    return tuple(
        evaluation.metrics[METRIC] for evaluation in history.read_evaluations(events) if METRIC in evaluation.metrics
    )


def _is_over(directory: JobDirectory) -> bool:
    """Neither a process of it nor a scheduler goes on with it."""
    name, queue = directory.root.name, home.local_queue()
    if home.is_starting_or_alive(directory) and not directory.result.exists():
        return False
    if queue.has_job(name):
        return not queueing.is_waiting_in_queue(
            directory, queueing.scheduling_status(name), queue
        ) and not home.is_alive(directory)
    return not home.is_alive(directory)


def _kill_trial(directory: JobDirectory, reason: str) -> None:
    """All its processes, at once; a scheduler neither goes on with it nor keeps room for it."""
    name, queue = directory.root.name, home.local_queue()
    is_queued = queue.has_job(name)
    if is_queued:
        queue.request_stop(name)  # first: else it might be launched again
    kill_job(directory, reason)
    if is_queued and not queue.is_served():
        queue.remove(name)


def _await_launcher_record(directory: JobDirectory, launcher: int | None) -> None:
    """A launcher that was just started must have written down that it lives, for all that it starts to be found."""
    deadline = time.monotonic() + LAUNCHER_START_TIMEOUT_S
    while launcher is not None and not directory.launcher.exists() and time.monotonic() < deadline:
        if os.waitid(os.P_PID, launcher, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(POLL_S)
