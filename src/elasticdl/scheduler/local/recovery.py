"""What a scheduler before us left: its report, the queue, and what the jobs' directories say."""

from __future__ import annotations

from collections.abc import Callable

from elasticdl.errors import SpecError
from elasticdl.scheduler.local.events import Event, Found, Submitted
from elasticdl.scheduler.local.queue import Queue
from elasticdl.scheduler.local.standing import Standing, State
from elasticdl.spec.directory import JobDirectory, read_json


def recover(queue: Queue, say: Callable[[str], None]) -> list[Event]:
    """Every job of the queue, as it was known last. Those that are over leave the queue."""
    report = queue.report()
    known = report.jobs if report else {}
    found: list[Event] = []
    for name in queue.names():
        try:
            submission = queue.find(name)
        except SpecError as exc:
            say(f"{name} is left alone: {exc}")
            continue
        standing = known.get(name)
        if submission is None:
            continue
        if standing is None or standing.submitted_at != submission.submitted_at:
            found.append(Submitted(submission))
        elif _is_over(queue.directory_of(name), standing):
            queue.remove(name)
        else:
            found.append(Found(submission, standing.state, standing.given, standing.account))
    return found


def _is_over(directory: JobDirectory, standing: Standing) -> bool:
    """Whether a job without processes was closed by a scheduler that then died; of others the end is yet to come."""
    if standing.state is not State.WAITING:
        return False
    result = read_json(directory.result)
    if result is None:
        return False
    is_suspended = result.get("phase") == "stopped" and standing.account.launches > 0
    return not is_suspended
