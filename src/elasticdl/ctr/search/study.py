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

PRUNERS = ("median", "hyperband", "none")
STUDY_NAME = "search"
_COMMON, _REASON, _JOB = "of", "reason", "job"


class TrialStatus(StrEnum):
    RUNNING = "running"
    COMPLETE = "complete"
    PRUNED = "pruned"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Trial:
    """`reports`: the logloss of each evaluation so far. `value`: the least of them, once the trial is over."""

    number: int
    state: TrialStatus
    values: Mapping[str, Any]
    reports: tuple[float, ...]
    value: float | None = None
    reason: str = ""
    job: str = ""  # its name

    @property
    def best_evaluation(self) -> int:
        """Which of its evaluations was the best, from 0."""
        return min(range(len(self.reports)), key=lambda one: self.reports[one], default=0)


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How is searched. The first `startup` trials are never pruned."""

    pruner: str = "median"
    startup_trials: int = 5
    seed: int = 0
    max_reports: int = 1  # evaluations of a trial that nobody ends early


class Study:
    """One search, kept in a file: whoever opens it again goes on."""

    def __init__(self, found: optuna.Study, space: Space) -> None:
        self._found = found
        self._space = space
        self._running: dict[int, optuna.Trial] = {}

    @classmethod
    def open(cls, path: Path, space: Space, manner: SearchOptions, of: Mapping[str, Any]) -> Study:
        """`of`: all that trials must have in common to be compared. SpecError where it has changed since."""
        optuna = require_optuna()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        path.parent.mkdir(parents=True, exist_ok=True)
        found = optuna.create_study(
            storage=optuna.storages.RDBStorage(f"sqlite:///{path}"),
            study_name=STUDY_NAME,
            direction="minimize",
            load_if_exists=True,
            pruner=_make_pruner(manner),
        )
        # Those already there count, so that going on does not repeat the random ones it began with.
        found.sampler = optuna.samplers.TPESampler(seed=manner.seed + len(found.get_trials(deepcopy=False)))
        now = {**of, "search": {key: _fixed_part(dimension) for key, dimension in space.items()}}
        now = json.loads(json.dumps(now))
        _check_same(found.user_attrs.get(_COMMON), now, path)
        found.set_user_attr(_COMMON, now)
        study = cls(found, space)
        for one in found.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
            study._running[one.number] = optuna.trial.Trial(found, one._trial_id)
        return study

    @property
    def trials(self) -> list[Trial]:
        return [self._read(one) for one in self._found.get_trials(deepcopy=False)]

    @property
    def running(self) -> list[Trial]:
        """Also those that an earlier search left so."""
        return [one for one in self.trials if one.state is TrialStatus.RUNNING]

    @property
    def best(self) -> Trial | None:
        """The least logloss of those that ran to their end."""
        whole = [one for one in self.trials if one.state is TrialStatus.COMPLETE and one.value is not None]
        return min(whole, key=lambda one: one.value or 0.0, default=None)

    def ask(self, name: str) -> Trial:
        """What is to be tried next, as a job called after `name`."""
        asked = self._found.ask()
        asked.set_user_attr(_JOB, f"{name}-trial-{asked.number:03}")
        for key, dimension in self._space.items():
            if isinstance(dimension, ChoiceDimension):
                asked.suggest_categorical(key, dimension.stored_values)
            elif dimension.is_whole:
                asked.suggest_int(key, int(dimension.low), int(dimension.high))
            else:
                asked.suggest_float(key, dimension.low, dimension.high, log=dimension.is_log)
        self._running[asked.number] = asked
        return self.trials[asked.number]

    def report(self, number: int, reports: tuple[float, ...]) -> bool:
        """All evaluations of a running trial so far. Whether it is to be given up."""
        asked = self._running[number]
        known = len(self.trials[number].reports)
        for step, value in enumerate(reports):
            if step < known:
                continue
            asked.report(value, step)
            if asked.should_prune():
                return True
        # One that a search was killed over, before it could tell.
        return bool(reports) and len(reports) <= known and bool(asked.should_prune())

    def finish(self, number: int, state: TrialStatus, reason: str = "") -> None:
        """A trial is over; its value is the least that it reported."""
        from optuna.trial import TrialState

        states = {
            TrialStatus.COMPLETE: TrialState.COMPLETE,
            TrialStatus.PRUNED: TrialState.PRUNED,
            TrialStatus.FAILED: TrialState.FAIL,
        }
        asked = self._running.pop(number)
        if reason:
            asked.set_user_attr(_REASON, reason)
        values = min(self.trials[number].reports) if state is TrialStatus.COMPLETE else None
        self._found.tell(asked, values, states[state])

    def _read(self, one: optuna.trial.FrozenTrial) -> Trial:
        states = {"COMPLETE": TrialStatus.COMPLETE, "PRUNED": TrialStatus.PRUNED, "FAIL": TrialStatus.FAILED}
        values = {
            key: dimension.from_stored(one.params[key]) if isinstance(dimension, ChoiceDimension) else one.params[key]
            for key, dimension in self._space.items()
            if key in one.params
        }
        reports = tuple(one.intermediate_values[step] for step in sorted(one.intermediate_values))
        state = states.get(one.state.name, TrialStatus.RUNNING)
        value = one.value if state is TrialStatus.COMPLETE else None
        reason, job = (str(one.user_attrs.get(key, "")) for key in (_REASON, _JOB))
        return Trial(one.number, state, values, reports, value, reason, job)


def require_optuna() -> Any:
    """SpecError, with the fix, where it is not installed."""
    try:
        import optuna
    except ImportError as exc:
        raise SpecError(f"ctr search needs Optuna: {install_command('search')}") from exc
    return optuna


def _make_pruner(manner: SearchOptions) -> Any:
    from optuna import pruners

    if manner.pruner == "hyperband":
        return pruners.HyperbandPruner(min_resource=1, max_resource=manner.max_reports, reduction_factor=3)
    if manner.pruner == "none":
        return pruners.NopPruner()
    # The first evaluation says little: whoever learns slowly may be the best in the end.
    return pruners.MedianPruner(n_startup_trials=manner.startup_trials, n_warmup_steps=1)


def _fixed_part(dimension: RangeDimension | ChoiceDimension) -> Any:
    """What must not change of it: ranges may become wider or narrower, choices stay the same."""
    return dimension.stored_values if isinstance(dimension, ChoiceDimension) else dimension.kind


def _check_same(before: Mapping[str, Any] | None, now: Mapping[str, Any], path: Path) -> None:
    if before is None:
        return
    changed = [key for key in now if before.get(key) != now[key]]
    if changed:
        raise SpecError(
            f"{path}: is a search of another config: {', '.join(changed)} changed since, so that its trials cannot be "
            f"compared with new ones; remove {path.parent} to begin anew, or change it back"
        )
