"""The loop of a search: runs a few trials at a time, each as a job, prunes and finishes them.

Jobs are behind a protocol, so the loop can be stepped by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from elasticdl.ctr.search.study import Study, Trial, TrialStatus
from elasticdl.errors import PermanentError, SpecError

MAX_INITIAL_FAILURES = 3  # so many trials that failed, and none that worked: the config is wrong, not the luck


@dataclass(frozen=True, slots=True)
class TrialProgress:
    """A job of a trial: the logloss of each evaluation so far, and how it stands."""

    reports: tuple[float, ...]
    phase: str = "running"  # waiting, running, succeeded, failed, stopped
    reason: str = ""

    @property
    def is_over(self) -> bool:
        return self.phase in ("succeeded", "failed", "stopped")


class TrialExecutor(Protocol):
    """Trials as jobs."""

    def start(self, trial: Trial, *, is_new: bool) -> None:
        """Start the job of a trial, or take up what an earlier search left of it."""

    def poll(self, trial: Trial) -> TrialProgress: ...

    def stop(self, trial: Trial) -> None:
        """End it at once: when this returns, none of its processes is left."""

    def clean_up(self, trial: Trial) -> None:
        """The trial is over: what only served to go on with it may go."""


class Search:
    """Turn by turn: look at what runs, give up what is not worth it, start what is missing."""

    def __init__(self, study: Study, jobs: TrialExecutor, trials: int, parallel: int, name: str) -> None:
        """`trials`: in all, those of earlier searches too. `name`: of new jobs, NAME-trial-007."""
        self.study = study
        self.progress: dict[int, TrialProgress] = {}
        self._jobs, self._trials, self._parallel, self._name = jobs, trials, parallel, name
        self._started: dict[int, Trial] = {}

    def step(self) -> bool:
        """Whether there is more to come. PermanentError where nothing works."""
        for trial in list(self._started.values()):
            self._look_at(trial)
        while len(self._started) < self._parallel and self._begin():
            pass
        return bool(self._started)

    def stop(self) -> None:
        """End the jobs. Their trials are not over: the next search goes on with them."""
        for trial in self._started.values():
            self._jobs.stop(trial)
        self._started.clear()

    def _begin(self) -> bool:
        """Start one that an earlier search left, else a new one; False where there are enough."""
        trials = self.study.trials
        left = [one for one in trials if one.state is TrialStatus.RUNNING and one.number not in self._started]
        failed = [one for one in trials if one.state is TrialStatus.FAILED]
        if len(failed) == len(trials) >= MAX_INITIAL_FAILURES:
            raise PermanentError(f"the first {len(failed)} trials failed; the last one: {failed[-1].reason}")
        if not left and len(trials) >= self._trials:
            return False
        trial = left[0] if left else self.study.ask(self._name)
        try:
            self._jobs.start(trial, is_new=not left)
        except SpecError as exc:
            self.study.finish(trial.number, TrialStatus.FAILED, str(exc))
            raise
        self._started[trial.number] = trial
        self.progress[trial.number] = TrialProgress(trial.reports)
        return True

    def _look_at(self, trial: Trial) -> None:
        progress = self.progress[trial.number] = self._jobs.poll(trial)
        is_hopeless = self.study.report(trial.number, progress.reports)
        if is_hopeless and not progress.is_over:
            self._jobs.stop(trial)
            self._finish(trial, TrialStatus.PRUNED, f"after evaluation {len(self.study.trials[trial.number].reports)}")
        elif progress.phase == "succeeded" and progress.reports:
            self._finish(trial, TrialStatus.COMPLETE)
        elif progress.is_over:
            why = progress.reason or (
                "it was never evaluated" if progress.phase == "succeeded" else f"the job {progress.phase}"
            )
            self._finish(trial, TrialStatus.FAILED, why)

    def _finish(self, trial: Trial, state: TrialStatus, reason: str = "") -> None:
        del self._started[trial.number]
        self.study.finish(trial.number, state, reason)
        self._jobs.clean_up(trial)
