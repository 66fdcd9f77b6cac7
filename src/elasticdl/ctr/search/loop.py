"""The loop of a search: runs a few trials at a time, each as a job, prunes and finishes them.

Jobs are behind a protocol, so the loop can be stepped by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from elasticdl.ctr.search.study import Study, Trial, TrialStatus
from elasticdl.errors import PermanentError, SpecError

MAX_INITIAL_FAILURES = 3  # if the first this many trials all fail, the config is wrong


@dataclass(frozen=True, slots=True)
class TrialProgress:
    """The progress of a trial's job: the logloss of each evaluation so far, and the phase."""

    reports: tuple[float, ...]
    phase: str = "running"  # waiting, running, succeeded, failed, stopped
    reason: str = ""

    @property
    def is_over(self) -> bool:
        return self.phase in ("succeeded", "failed", "stopped")


class TrialExecutor(Protocol):
    """Runs trials as jobs."""

    def start(self, trial: Trial, *, is_new: bool) -> None:
        """Starts the job of a trial, or resumes what an earlier search left."""

    def poll(self, trial: Trial) -> TrialProgress: ...

    def stop(self, trial: Trial) -> None:
        """Stops a job at once: afterwards none of its processes is left."""

    def clean_up(self, trial: Trial) -> None:
        """Removes what is needed only to resume the trial, which is over."""


class Search:
    """Steps through a search: polls running trials, stops hopeless ones, and starts new ones."""

    def __init__(self, study: Study, jobs: TrialExecutor, trials: int, parallel: int, name: str) -> None:
        """`trials` counts those of earlier searches too. New jobs are called `name`-trial-007."""
        self.study = study
        self.progress: dict[int, TrialProgress] = {}
        self._jobs, self._trials, self._parallel, self._name = jobs, trials, parallel, name
        self._started: dict[int, Trial] = {}

    def step(self) -> bool:
        """Returns whether trials are left. Raises PermanentError if all trials fail."""
        for trial in list(self._started.values()):
            self._poll(trial)
        while len(self._started) < self._parallel and self._begin():
            pass
        return bool(self._started)

    def stop(self) -> None:
        """Stops the jobs. Their trials are not over: the next search resumes them."""
        for trial in self._started.values():
            self._jobs.stop(trial)
        self._started.clear()

    def _begin(self) -> bool:
        """Starts a trial that an earlier search left, or a new one. Returns False if there are enough."""
        trials = self.study.trials
        unfinished = [
            trial for trial in trials if trial.state is TrialStatus.RUNNING and trial.number not in self._started
        ]
        failed = [trial for trial in trials if trial.state is TrialStatus.FAILED]
        if len(failed) == len(trials) >= MAX_INITIAL_FAILURES:
            raise PermanentError(f"the first {len(failed)} trials failed; the last one: {failed[-1].reason}")
        if not unfinished and len(trials) >= self._trials:
            return False
        trial = unfinished[0] if unfinished else self.study.ask(self._name)
        try:
            self._jobs.start(trial, is_new=not unfinished)
        except SpecError as exc:
            self.study.finish(trial.number, TrialStatus.FAILED, str(exc))
            raise
        self._started[trial.number] = trial
        self.progress[trial.number] = TrialProgress(trial.reports)
        return True

    def _poll(self, trial: Trial) -> None:
        progress = self.progress[trial.number] = self._jobs.poll(trial)
        is_hopeless = self.study.report(trial.number, progress.reports)
        if is_hopeless and not progress.is_over:
            self._jobs.stop(trial)
            self._finish(trial, TrialStatus.PRUNED, f"after evaluation {len(self.study.trials[trial.number].reports)}")
        elif progress.phase == "succeeded" and progress.reports:
            self._finish(trial, TrialStatus.COMPLETE)
        elif progress.is_over:
            reason = progress.reason or (
                "it was never evaluated" if progress.phase == "succeeded" else f"the job {progress.phase}"
            )
            self._finish(trial, TrialStatus.FAILED, reason)

    def _finish(self, trial: Trial, state: TrialStatus, reason: str = "") -> None:
        del self._started[trial.number]
        self.study.finish(trial.number, state, reason)
        self._jobs.clean_up(trial)
