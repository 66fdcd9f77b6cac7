"""The jobs of this user on this machine, found by name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from elasticdl.errors import JobNotFound, SpecError
from elasticdl.scheduler.local.queue import SubmissionQueue
from elasticdl.spec import env
from elasticdl.spec.directory import JobDirectory
from elasticdl.spelling import did_you_mean

LAST = "last"


_chosen_home: ContextVar[Path | None] = ContextVar("elasticdl_home", default=None)


def home_directory() -> Path:
    """The directory of jobs and their queue: ELASTICDL_HOME, or the directory of an open `use_home`."""
    return _chosen_home.get() or env.elasticdl_home(os.environ).absolute()


@contextmanager
def use_home(directory: Path) -> Iterator[None]:
    """Within the block, `directory` is the home of this thread's jobs, whatever ELASTICDL_HOME says."""
    token = _chosen_home.set(directory.absolute())
    try:
        yield
    finally:
        _chosen_home.reset(token)


def process_environ() -> dict[str, str]:
    """The environment for processes of jobs: ours, with the home that is in use."""
    has_home = env.HOME in os.environ or _chosen_home.get() is not None
    return {**os.environ, **({env.HOME: str(home_directory())} if has_home else {})}


def jobs_directory() -> Path:
    return home_directory() / "jobs"


def local_queue() -> SubmissionQueue:
    """The queue of this machine's scheduler."""
    return SubmissionQueue(home_directory())


def job_directory(name: str) -> JobDirectory:
    """The directory of the job with this name, which need not exist."""
    return JobDirectory(jobs_directory() / name)


def job_names() -> list[str]:
    """All jobs, the newest last."""
    root = jobs_directory()
    if not root.is_dir():
        return []
    by_age = [(path.stat().st_mtime, path.parent.name) for path in root.glob("*/spec.json")]
    return [name for _, name in sorted(by_age)]


def resolve_name(word: str, names: Sequence[str]) -> str | None:
    """The name of `names`, the newest last, that `word` means; None if it means none.

    Raises SpecError, with the candidates, where several names begin with it.
    """
    if word in names or not word:
        return word or None
    if word == LAST:
        return names[-1] if names else None
    candidates = [name for name in names if name.startswith(word)]
    if len(candidates) > 1:
        raise SpecError(f"{word!r} is the beginning of several jobs: {', '.join(candidates)}; write more of the name")
    return candidates[0] if candidates else None


def find_directory(word: str) -> JobDirectory:
    """The job that `word` means: see `resolve_name`. An error with the nearest name if there is none."""
    names = job_names()
    name = resolve_name(word, names)
    if name is None:
        raise JobNotFound(
            f"no job {word!r} in {jobs_directory()}"
            + did_you_mean(word, names, "; see `elasticdl jobs`" if names else "; there is none yet")
        )
    return job_directory(name)


def find_name_to_resume(word: str) -> str:
    """The whole name of the job that `word`, which may be `last` or a prefix, asks to resume."""
    names = job_names()
    name = resolve_name(word, names)
    if name is None:
        hint = did_you_mean(word, names, "; see `elasticdl jobs`" if names else "; there is none yet")
        raise JobNotFound(f"--resume: there is no job {word!r} to go on with in {jobs_directory()}{hint}")
    return name


def is_starting_or_alive(directory: JobDirectory) -> bool:
    """As `is_alive`, also for a launcher that has just been started and has no record yet."""
    return not directory.launcher.exists() or is_alive(directory)


def is_alive(directory: JobDirectory) -> bool:
    """Whether a launcher or a master keeps the job going."""
    from elasticdl.launcher.local.record import is_running

    return is_running(directory)
