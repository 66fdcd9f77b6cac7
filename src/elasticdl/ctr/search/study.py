"""The study of a search: its trials, their reports, and what is tried next. The only module that imports Optuna."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elasticdl.ctr.search.space import ChoiceDimension, RangeDimension, Space
from elasticdl.errors import SpecError
from elasticdl.extras import install_command

if TYPE_CHECKING:
    import optuna

STUDY_NAME = "search"
_COMMON, _REASON, _JOB = "of", "reason", "job"


class TrialStatus(StrEnum):
    RUNNING = "running"
    COMPLETE = "complete"
    PRUNED = "pruned"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial. `reports` are the logloss of each evaluation so far, `value` the lowest of them at the end."""

    number: int
    state: TrialStatus
    values: Mapping[str, Any]
    reports: tuple[float, ...]
    value: float | None = None
    reason: str = ""
    job: str = ""  # its job's name

    @property
    def best_evaluation(self) -> int:
        """The number of its best evaluation, from 0."""
        return min(range(len(self.reports)), key=lambda index: self.reports[index], default=0)


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Options of a search. The first `startup_trials` are never pruned."""

    pruner: str = "median"
    startup_trials: int = 5
    seed: int = 0
    max_reports: int = 1  # evaluations of a trial that is not ended early


class Study:
    """A search that is stored in a file, and continues when it is opened again."""

    def __init__(self, study: optuna.Study, space: Space) -> None:
        self._study = study
        self._space = space
        self._running: dict[int, optuna.Trial] = {}

    @classmethod
    def open(cls, path: Path, space: Space, options: SearchOptions, of: Mapping[str, Any]) -> Study:
        """Opens or creates a search. Raises SpecError if `of`, which all trials must have in common, has changed."""
        optuna = require_optuna()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        path.parent.mkdir(parents=True, exist_ok=True)
        optuna_study = optuna.create_study(
            storage=optuna.storages.RDBStorage(f"sqlite:///{path}"),
            study_name=STUDY_NAME,
            direction="minimize",
            load_if_exists=True,
            pruner=_make_pruner(options),
        )
        # The seed depends on the existing trials, so that a resumed search does not repeat its random ones.
        optuna_study.sampler = optuna.samplers.TPESampler(
            seed=options.seed + len(optuna_study.get_trials(deepcopy=False))
        )
        now = {**of, "search": {key: _fixed_part(dimension) for key, dimension in space.items()}}
        now = json.loads(json.dumps(now))
        _check_same(optuna_study.user_attrs.get(_COMMON), now, path)
        optuna_study.set_user_attr(_COMMON, now)
        study = cls(optuna_study, space)
        for frozen in optuna_study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
            study._running[frozen.number] = optuna.trial.Trial(optuna_study, frozen._trial_id)
        return study

    @property
    def trials(self) -> list[Trial]:
        return [self._read(frozen) for frozen in self._study.get_trials(deepcopy=False)]

    @property
    def running(self) -> list[Trial]:
        """Trials that run, also those that an earlier search left."""
        return [trial for trial in self.trials if trial.state is TrialStatus.RUNNING]

    @property
    def best(self) -> Trial | None:
        """The trial with the lowest logloss among those that are complete."""
        complete = [trial for trial in self.trials if trial.state is TrialStatus.COMPLETE and trial.value is not None]
        return min(complete, key=lambda trial: trial.value or 0.0, default=None)

    def ask(self, name: str) -> Trial:
        """Chooses the next trial, whose job is called after `name`."""
        trial = self._study.ask()
        trial.set_user_attr(_JOB, f"{name}-trial-{trial.number:03}")
        for key, dimension in self._space.items():
            if isinstance(dimension, ChoiceDimension):
                trial.suggest_categorical(key, dimension.stored_values)
            elif dimension.is_integer:
                trial.suggest_int(key, int(dimension.low), int(dimension.high))
            else:
                trial.suggest_float(key, dimension.low, dimension.high, log=dimension.is_log)
        self._running[trial.number] = trial
        return self.trials[trial.number]

    def report(self, number: int, reports: tuple[float, ...]) -> bool:
        """Reports all evaluations of a running trial so far. Returns whether to stop it."""
        trial = self._running[number]
        reported = len(self.trials[number].reports)
        for step, value in enumerate(reports):
            if step < reported:
                continue
            trial.report(value, step)
            if trial.should_prune():
                return True
        # An earlier search may have been killed before it could stop the trial.
        return bool(reports) and len(reports) <= reported and bool(trial.should_prune())

    def finish(self, number: int, state: TrialStatus, reason: str = "") -> None:
        """Ends a trial; its value is the lowest that it reported."""
        from optuna.trial import TrialState

        states = {
            TrialStatus.COMPLETE: TrialState.COMPLETE,
            TrialStatus.PRUNED: TrialState.PRUNED,
            TrialStatus.FAILED: TrialState.FAIL,
        }
        trial = self._running.pop(number)
        if reason:
            trial.set_user_attr(_REASON, reason)
        values = min(self.trials[number].reports) if state is TrialStatus.COMPLETE else None
        self._study.tell(trial, values, states[state])

    def _read(self, frozen: optuna.trial.FrozenTrial) -> Trial:
        states = {"COMPLETE": TrialStatus.COMPLETE, "PRUNED": TrialStatus.PRUNED, "FAIL": TrialStatus.FAILED}
        values = {
            key: dimension.from_stored(frozen.params[key])
            if isinstance(dimension, ChoiceDimension)
            else frozen.params[key]
            for key, dimension in self._space.items()
            if key in frozen.params
        }
        reports = tuple(frozen.intermediate_values[step] for step in sorted(frozen.intermediate_values))
        state = states.get(frozen.state.name, TrialStatus.RUNNING)
        value = frozen.value if state is TrialStatus.COMPLETE else None
        reason, job = (str(frozen.user_attrs.get(key, "")) for key in (_REASON, _JOB))
        return Trial(frozen.number, state, values, reports, value, reason, job)


def require_optuna() -> Any:
    """Imports Optuna. Raises SpecError, with the fix, if it is not installed."""
    try:
        import optuna
    except ImportError as exc:
        raise SpecError(f"ctr search needs Optuna: {install_command('search')}") from exc
    return optuna


def _make_pruner(options: SearchOptions) -> Any:
    from optuna import pruners

    if options.pruner == "hyperband":
        return pruners.HyperbandPruner(min_resource=1, max_resource=options.max_reports, reduction_factor=3)
    if options.pruner == "none":
        return pruners.NopPruner()
    # The first evaluation says little: a trial that learns slowly may be the best in the end.
    return pruners.MedianPruner(n_startup_trials=options.startup_trials, n_warmup_steps=1)


def _fixed_part(dimension: RangeDimension | ChoiceDimension) -> Any:
    """Returns what must not change: ranges may become wider or narrower, choices stay the same."""
    return dimension.stored_values if isinstance(dimension, ChoiceDimension) else dimension.kind


def _check_same(before: Mapping[str, Any] | None, now: Mapping[str, Any], path: Path) -> None:
    if before is None:
        return
    changed = [key for key in now if before.get(key) != now[key]]
    if changed:
        raise SpecError(
            f"{path}: is a search of another config: {', '.join(changed)} changed since, so that its trials cannot be "
            f"compared with new ones; remove {path.parent} to start over, or change it back"
        )
