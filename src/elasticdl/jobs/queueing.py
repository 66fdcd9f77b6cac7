"""Jobs in the queue of this machine's scheduler: hand one over, say why it waits, take it out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from elasticdl.errors import SpecError
from elasticdl.jobs import formatting, home
from elasticdl.jobs.interface import SubmissionReporter
from elasticdl.jobs.lookup import KUBERNETES, LOCAL
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.scheduler.accounts.report import ScheduledJobState, ScheduledJobStatus
from elasticdl.scheduler.local.queue import SubmissionQueue
from elasticdl.spec import JobKind, JobSpec, options
from elasticdl.spec.directory import JobDirectory, read_json

if TYPE_CHECKING:
    from elasticdl.scheduler.accounts.submission import JobSubmission

# Workers of many jobs share the cores: each has one, unless the user says otherwise.
QUEUED_JOB_DEFAULTS: dict[str, Any] = {"workers": {"threads": 1}}

DECISION_TIMEOUT_S = 3.0  # a scheduler has decided by then


def pop_queue_option(values: dict[str, Any], from_file: Mapping[str, Any], on: str) -> str | None:
    """The queue of this machine that is meant; None: no queue, or one of a cluster, which stays in `values`."""
    queue: str | None = values.get("queue")
    if queue is None:
        return None
    others = [
        option.name for option in options.OPTIONS if option.path.startswith("cluster.") and option.name != "queue"
    ]
    is_on_cluster = on == KUBERNETES or any(values.get(name) not in (None, ()) for name in others)
    if on != LOCAL and (is_on_cluster or from_file.get("cluster")):
        if not queue:
            raise SpecError("--queue: which queue of Kueue? On Kubernetes it has a name: --queue=NAME")
        return None
    values["queue"] = None
    return queue


def submit_to_queue(spec: JobSpec, name: str, priority: int, reporter: SubmissionReporter) -> None:
    """Puts the job into the queue and reports what the scheduler decides. Raises SpecError if it refuses the job."""
    if not _enqueue_job(spec, name, priority, reporter):
        reporter.say(f"job {spec.name} is queued, and waits: {NO_SCHEDULER}")
    elif decision := await_decision(spec.name):
        reporter.say(f"job {spec.name} is queued: {decision}")
    else:
        reporter.say(f"job {spec.name} is queued; the scheduler has not decided on it yet")


def _enqueue_job(spec: JobSpec, name: str, priority: int, reporter: SubmissionReporter) -> bool:
    """Checks the job, creates its directory and puts it into the queue. Returns whether a scheduler serves it."""
    from elasticdl.jobs import submission as submissions
    from elasticdl.scheduler.accounts.submission import JobSubmission

    if spec.kind not in (JobKind.TRAINING, JobKind.SCRIPT):
        raise SpecError(f"--queue: a {spec.kind} job cannot be interrupted and go on; start it without --queue")
    queue = home.local_queue()
    submission = JobSubmission.from_spec(spec, time.time(), home.process_environ(), priority=priority, queue=name)
    is_served = queue.is_served()
    if is_served:
        _check_capacity(submission)
    submissions.prepare_directory(spec, reporter)
    # Only now: checks that take long, on data of many files, are no wait for the scheduler.
    queue.submit(replace(submission, submitted_at=time.time()))
    return is_served


def _check_capacity(submission: JobSubmission) -> None:
    """Refuses a job that could not run here even alone, before anything is created."""
    from elasticdl.scheduler.placement.free_resources import FreeResources
    from elasticdl.scheduler.priorities import explain_infeasible
    from elasticdl.scheduler.snapshot import NodeInfo

    report = home.local_queue().load_report()
    if report is None:
        return
    empty = FreeResources(NodeInfo(name, devices) for name, devices in report.nodes.items())
    if reason := explain_infeasible(empty, submission.to_job_info()):
        raise SpecError(f"--queue: job {submission.name!r} {reason}; {_capacity_fix(submission.devices)}")


def _capacity_fix(devices: int) -> str:
    fewer = ", fewer --threads," if devices > 1 else ""
    return f"use a smaller --min_workers{fewer} or start the scheduler with a larger --budget"


def await_decision(name: str) -> str:
    """What the scheduler decides on a job that was just queued. SpecError if it rejects the job."""
    deadline = time.monotonic() + DECISION_TIMEOUT_S
    while time.monotonic() < deadline:
        decision = scheduling_status(name)
        if decision is not None:
            return explain_scheduling(decision)
        if reason := rejection_reason(name):
            raise SpecError(reason)
        time.sleep(0.05)
    return ""


UNDECIDED = "in the queue; the scheduler has not looked at it yet"
NO_SCHEDULER = "no scheduler runs; start one with `elasticdl scheduler`"


def scheduling_status(name: str) -> ScheduledJobStatus | None:
    """The last status that the scheduler wrote; None if it does not know the job, or the job left the queue."""
    queue = home.local_queue()
    submission = queue.find(name)
    report = queue.load_report() if submission else None
    status = report.jobs.get(name) if report else None
    return status if status and submission and status.submitted_at == submission.submitted_at else None


def explain_scheduling(scheduled: ScheduledJobStatus) -> str:
    """earlier jobs hold the devices; room expected in 1:05"""
    if scheduled.is_waiting:
        return f"{scheduled.reason}; {describe_wait(scheduled, 'room')}"
    if scheduled.state is ScheduledJobState.WAITING:
        return f"starts as soon as others have let go; {scheduled.reason}"
    return f"{scheduled.reason}; {describe_wait(scheduled, 'more')}" if scheduled.is_shrunk else scheduled.reason


def describe_wait(scheduled: ScheduledJobStatus, subject: str) -> str:
    if scheduled.expected_wait_s is None:
        return f"{subject}: wait unknown"
    return f"{subject} expected in {formatting.format_duration(scheduled.expected_wait_s)}"


def add_scheduling(directory: JobDirectory, status: pb.JobStatus) -> pb.JobStatus:
    """Adds what the scheduler says to the status of a queued job. Changes `status`."""
    name, queue = directory.root.name, home.local_queue()
    if not queue.has_job(name):
        return status
    scheduled = scheduling_status(name)
    is_alive = home.is_alive(directory)
    if is_alive and status.phase in ("pending", "starting", "running"):
        if scheduled is not None and (scheduled.is_waiting or scheduled.is_shrunk):
            status.reason = (
                explain_scheduling(scheduled) if queue.is_served() else f"{scheduled.reason}; {NO_SCHEDULER}"
            )
    elif not is_alive and is_waiting_in_queue(directory, scheduled, queue):
        status.phase = "waiting"
        reasons = [explain_scheduling(scheduled)] if scheduled else []
        status.reason = "; ".join([*reasons, *([] if queue.is_served() else [NO_SCHEDULER])]) or UNDECIDED
        submission = queue.find(name)
        status.exit_code = 0
        status.desired_workers = submission.requested if submission else status.desired_workers
        status.started_at, status.now = (submission.submitted_at if submission else status.started_at), time.time()
    return status


def is_waiting_in_queue(directory: JobDirectory, scheduled: ScheduledJobStatus | None, queue: SubmissionQueue) -> bool:
    """Whether a queued job without processes waits. With a result, it is over, unless the scheduler suspended it."""
    result = read_json(directory.result)
    if result is None:
        return True
    is_ours = (
        scheduled is not None and scheduled.state is not ScheduledJobState.RUNNING and scheduled.account.launches > 0
    )
    return is_ours and result.get("phase") == "stopped" and directory.root.name not in queue.stop_requests()


def is_name_queued(directory: JobDirectory) -> bool:
    """Whether this name belongs to a job of the queue. One that ended while no scheduler ran is still in it."""
    name, queue = directory.root.name, home.local_queue()
    return queue.has_job(name) and (queue.is_served() or is_waiting_in_queue(directory, scheduling_status(name), queue))


def scheduling_document(name: str) -> dict[str, Any] | None:
    """The scheduler's status as plain JSON values; None for a job in no queue, or without a decision."""
    scheduled = scheduling_status(name)
    if scheduled is None:
        return None
    return {
        "state": scheduled.state.value,
        "workers": scheduled.worker_count,
        "reason": scheduled.reason,
        "expected_wait_s": scheduled.expected_wait_s,
        "since": scheduled.allocated_at,
        "priority": scheduled.priority,
        "queue": scheduled.queue or None,
        "attained_device_s": scheduled.account.attained_s,
        "changes": scheduled.account.changes,
        "batch_scale": scheduled.batch_scale or None,
    }


def rejection_reason(name: str) -> str:
    """Why a job was over before it was launched; "" for all other jobs."""
    directory = home.job_directory(name)
    result = read_json(directory.result)
    if home.local_queue().has_job(name) or result is None or directory.launcher.exists():
        return ""
    return f"job {name!r} {result.get('reason', 'was rejected')}"


def refuse_scaling(name: str) -> None:
    """Raises SpecError if a scheduler decides on the workers of the job."""
    queue = home.local_queue()
    if queue.has_job(name) and queue.is_served():
        scheduled = scheduling_status(name)
        state = f" ({explain_scheduling(scheduled)})" if scheduled else ""
        raise SpecError(
            f"job {name!r} is in the queue: the scheduler decides on its workers{state}; "
            "give it another --priority, or end the scheduler, to scale it yourself"
        )


def withdraw_job(directory: JobDirectory) -> str:
    """Takes a job that waits out of the queue. Returns a message about that."""
    from elasticdl.scheduler.local.queue import close_job

    name, queue = directory.root.name, home.local_queue()
    queue.request_stop(name)
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        with queue.acquire_lock() as is_ours:
            if is_ours and not home.is_alive(directory):
                close_job(directory, "stopped", "taken out of the queue by its owner")
                queue.remove(name)
        if not queue.has_job(name):
            return f"{name}: taken out of the queue"
        time.sleep(0.05)
    return f"{name}: the scheduler was asked to take it out of the queue"
