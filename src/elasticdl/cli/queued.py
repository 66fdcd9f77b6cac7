"""A job of this machine's queue as people see it: whether it waits, why, and for how long."""

from __future__ import annotations

import time
from typing import Any

from elasticdl.cli import home, words
from elasticdl.errors import SpecError
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.scheduler.local.queue import Queue
from elasticdl.scheduler.local.standing import Standing, State
from elasticdl.spec.directory import JobDirectory, read_json

UNSEEN = "in the queue; the scheduler has not looked at it yet"
NOBODY = "no scheduler runs; start one with `elasticdl scheduler`"


def standing(name: str) -> Standing | None:
    """As the scheduler wrote it down last; None where it knows no such job, or the job left the queue."""
    queue = home.queue()
    submission = queue.find(name)
    report = queue.report() if submission else None
    found = report.jobs.get(name) if report else None
    return found if found and submission and found.submitted_at == submission.submitted_at else None


def explain(one: Standing) -> str:
    """earlier jobs hold the devices; room expected in 1:05"""
    if one.is_waiting:
        return f"{one.reason}; {wait(one, 'room')}"
    if one.state is State.WAITING:
        return f"starts as soon as others have let go; {one.reason}"
    return f"{one.reason}; {wait(one, 'more')}" if one.is_shrunk else one.reason


def wait(one: Standing, what: str) -> str:
    if one.expected_wait_s is None:
        return f"{what}: nobody can say when"
    return f"{what} expected in {words.duration(one.expected_wait_s)}"


def shown(directory: JobDirectory, status: pb.JobStatus) -> pb.JobStatus:
    """`status` with what the scheduler says; that of a job which is in no queue as it is."""
    name, queue = directory.root.name, home.queue()
    if not queue.has(name):
        return status
    one = standing(name)
    is_alive = home.is_alive(directory)
    if is_alive and status.phase in ("pending", "starting", "running"):
        if one is not None and (one.is_waiting or one.is_shrunk):
            status.reason = explain(one) if queue.is_served() else f"{one.reason}; {NOBODY}"
    elif not is_alive and is_waiting(directory, one, queue):
        status.phase = "waiting"
        said = [explain(one)] if one else []
        status.reason = "; ".join([*said, *([] if queue.is_served() else [NOBODY])]) or UNSEEN
        submission = queue.find(name)
        status.exit_code = 0
        status.wished_workers = submission.requested if submission else status.wished_workers
        status.started_at, status.now = (submission.submitted_at if submission else status.started_at), time.time()
    return status


def is_waiting(directory: JobDirectory, one: Standing | None, queue: Queue) -> bool:
    """Of a job of the queue without processes: a result is its end, unless the scheduler suspended it."""
    result = read_json(directory.result)
    if result is None:
        return True
    is_ours = one is not None and one.state is not State.RUNNING and one.account.launches > 0
    return is_ours and result.get("phase") == "stopped" and directory.root.name not in queue.asked_to_stop()


def is_taken(directory: JobDirectory) -> bool:
    """Whether this name belongs to a job of the queue. One that ended while no scheduler ran still stands there."""
    name, queue = directory.root.name, home.queue()
    return queue.has(name) and (queue.is_served() or is_waiting(directory, standing(name), queue))


def document(name: str) -> dict[str, Any] | None:
    """For scripts; null for a job that is in no queue, or not yet decided on."""
    one = standing(name)
    if one is None:
        return None
    return {
        "state": one.state.value,
        "workers": one.workers,
        "reason": one.reason,
        "expected_wait_s": one.expected_wait_s,
        "since": one.since,
        "priority": one.priority,
        "queue": one.queue or None,
        "attained_device_s": one.account.attained_s,
        "changes": one.account.changes,
        "batch_scale": one.batch_scale or None,
    }


def why_rejected(name: str) -> str:
    """Of a job that was never launched and is over; "" for all others."""
    directory = home.directory_of(name)
    result = read_json(directory.result)
    if home.queue().has(name) or result is None or directory.launcher.exists():
        return ""
    return f"job {name!r} {result.get('reason', 'was rejected')}"


def refuse_to_scale(name: str) -> None:
    """How many workers a job of the queue has is the scheduler's, as long as one runs."""
    queue = home.queue()
    if queue.has(name) and queue.is_served():
        one = standing(name)
        why = f" ({explain(one)})" if one else ""
        raise SpecError(
            f"job {name!r} is in the queue: the scheduler decides on its workers{why}; "
            "give it another --priority, or end the scheduler, to scale it yourself"
        )


def withdraw(directory: JobDirectory) -> str:
    """Take a job that waits out of the queue; what there is to say about it."""
    from elasticdl.scheduler.local.closing import close

    name, queue = directory.root.name, home.queue()
    queue.ask_to_stop(name)
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        with queue.serving() as is_ours:
            if is_ours and not home.is_alive(directory):
                close(directory, "stopped", "taken out of the queue by its owner")
                queue.remove(name)
        if not queue.has(name):
            return f"{name}: taken out of the queue"
        time.sleep(0.05)
    return f"{name}: the scheduler was asked to take it out of the queue"
