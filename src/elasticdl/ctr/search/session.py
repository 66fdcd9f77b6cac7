"""Runs a search: trials as jobs, until there are enough, time is up or the user ends it."""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from elasticdl.ctr import config as configs
from elasticdl.ctr import config_job
from elasticdl.ctr.job_description import evaluations_per_epoch
from elasticdl.ctr.models import catalog
from elasticdl.ctr.search import best_config, space
from elasticdl.ctr.search.loop import Search, TrialProgress
from elasticdl.ctr.search.study import SearchOptions, Study, Trial, TrialStatus, require_optuna
from elasticdl.ctr.search.trial_jobs import TrialJobs
from elasticdl.errors import SpecError
from elasticdl.features.preprocessing.preprocessor import PREPROCESSOR_FILE
from elasticdl.jobs import home
from elasticdl.jobs.interface import SubmissionReporter
from elasticdl.spec import JobKind, load
from elasticdl.spec.job import NAME_PATTERN

if TYPE_CHECKING:
    from elasticdl.ctr.build import BuildResult
    from elasticdl.ctr.config import CtrConfig
    from elasticdl.ctr.search.space import Space

POLL_S = 0.3
EXIT_INTERRUPTED = 130
PARALLEL_IN_QUEUE = 4  # trials at a time where a scheduler shares the machine among them
# The keys that all trials have in common, beside the preprocessor: if one changes, trials cannot be compared.
COMPARED_KEYS = ("data", "validation", "split", "label", "label_values", "model", "params", "weight", "job")


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """The options of `elasticdl ctr search`."""

    trials: int
    parallel: int | None
    timeout_s: float | None
    name: str | None
    options: SearchOptions


class SearchDisplay(Protocol):
    """Shows a search while it runs."""

    def show(
        self, trials: list[Trial], seen: Mapping[int, TrialProgress], best: Trial | None, planned: int
    ) -> None: ...

    def show_notice(self, notice: str) -> None: ...


OpenDisplay = Callable[[], AbstractContextManager[SearchDisplay]]


def run_search(file: Path, request: SearchRequest, open_display: OpenDisplay, reporter: SubmissionReporter) -> int:
    """Runs the search of a config. Returns the exit code of the command. All errors of the config come before its
    data is read."""
    require_optuna()
    document = load.read_yaml_file(file)
    name = _job_name_prefix(request.name or file.stem)
    parsed = configs.parse_config(document, str(file))
    if parsed.model in catalog.MODELS_BY_NAME:  # otherwise the build raises the error
        _search_space(parsed, f"{file}: search")
    if parsed.job.get("cluster"):
        raise SpecError(f"{file}: job.cluster: trials run on this machine; leave it out to search")
    if parsed.data_splits[1] is None:
        raise SpecError(f"{file}: split: a search needs validation rows to choose by, e.g. [80, 10, 10]")
    config_job.check_model_framework(document, JobKind.TRAINING)
    config, built = config_job.build_config(file, reporter, document)
    search_space = _search_space(config, f"{file}: search")
    directory = built.directory / "search"
    directory.mkdir(exist_ok=True)
    with _lock_search(directory):
        max_evaluations = math.ceil(config.training.epochs * evaluations_per_epoch(config, built.rows))
        search_options = SearchOptions(
            request.options.pruner, request.options.startup_trials, request.options.seed, max_evaluations
        )
        study = Study.open(directory / "study.db", search_space, search_options, _comparison_key(config, built))
        parallel = request.parallel or (PARALLEL_IN_QUEUE if home.local_queue().is_served() else 1)
        with closing(TrialJobs(config, built, file, parallel)) as jobs:
            is_complete = _run_trials(Search(study, jobs, request.trials, parallel, name), request, open_display)
        return _report_best(study, document, config, built, directory, reporter, is_complete=is_complete)


def _search_space(config: CtrConfig, where: str) -> Space:
    params = catalog.MODELS_BY_NAME[config.model].declared_params
    parsed = space.parse_space(config.search, where) if config.search else space.default_space(config, params)
    space.check_space(parsed, config, params, where)
    if not parsed:
        raise SpecError(f"{where}: nothing to search; name a range, e.g. learning_rate: log(1e-4, 1e-2)")
    return parsed


def _comparison_key(config: CtrConfig, built: BuildResult) -> dict[str, Any]:
    preprocessor = hashlib.sha256((built.directory / PREPROCESSOR_FILE).read_bytes()).hexdigest()
    same = {key: value for key, value in config.model_dump(mode="json").items() if key in COMPARED_KEYS}
    training = config.training.model_dump(mode="json", exclude={"learning_rate", "batch_size"})
    return {**same, "features": preprocessor, "training": training}


def _run_trials(search: Search, request: SearchRequest, open_display: OpenDisplay) -> bool:
    """Runs trials and returns whether all are over. No job runs on afterwards, even after an error."""
    deadline = None if request.timeout_s is None else time.monotonic() + request.timeout_s
    with _event_on_signals() as is_ended, open_display() as screen:
        try:
            while search.step():
                screen.show(search.study.trials, search.progress, search.study.best, request.trials)
                if deadline is not None and time.monotonic() > deadline:
                    screen.show_notice(f"{request.timeout_s:g} s are up: running trials are stopped")
                    return False
                if is_ended.wait(POLL_S):
                    screen.show_notice("stopping the running trials; the same command resumes them")
                    return False
            screen.show(search.study.trials, search.progress, search.study.best, request.trials)
            return True
        finally:
            search.stop()


def _report_best(
    study: Study,
    document: Any,
    config: CtrConfig,
    built: BuildResult,
    directory: Path,
    reporter: SubmissionReporter,
    *,
    is_complete: bool,
) -> int:
    trials, best = study.trials, study.best
    counts = {state: sum(trial.state is state for trial in trials) for state in TrialStatus}
    reporter.say(", ".join(f"{number} {state.value}" for state, number in counts.items() if number))
    if best is not None:
        path = directory / best_config.BEST_FILE
        finished = len(trials) - counts[TrialStatus.RUNNING]
        best_config.write_best_config(
            path, best_config.make_best_config(document, config, best), best, finished, built.directory
        )
        reporter.say(f"best: trial {best.number}, validation logloss {best.value:.6g}: {format_values(best.values)}")
        reporter.say(f"train it   elasticdl train {path}")
    elif is_complete:
        reporter.say("no trial was completed, so there is no best config")
        return 1
    return 0 if is_complete else EXIT_INTERRUPTED


def format_values(values: Mapping[str, Any]) -> str:
    """Formats values such as `learning_rate 0.00123, columns 16`."""
    return ", ".join(
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in values.items()
    )


def _job_name_prefix(word: str) -> str:
    """Turns a word into the beginning of a job's name: lower-case letters, digits and hyphens."""
    name = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in word.lower()).strip("-")
    if not NAME_PATTERN.fullmatch(f"{name}-trial-000"):
        raise SpecError(f"--job_name: {word!r} cannot begin the name of a job: use some letters, digits and hyphens")
    return name


@contextmanager
def _lock_search(directory: Path) -> Iterator[None]:
    """Allows one search of a config at a time. Raises SpecError if another one runs."""
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as exc:
        raise SpecError(f"another search is running in {directory}; wait for it, or end it with Ctrl-C") from exc
    finally:
        os.close(descriptor)


@contextmanager
def _event_on_signals() -> Iterator[threading.Event]:
    """Yields an event that the first signal sets; a second Ctrl-C raises KeyboardInterrupt."""
    is_ended = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}

    def on_signal(number: int, _: Any) -> None:
        is_ended.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    for number in numbers:
        signal.signal(number, on_signal)
    try:
        yield is_ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
