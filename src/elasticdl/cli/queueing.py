"""`train --queue`: hand a job to the scheduler of this machine, which may not run yet."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from elasticdl.cli import home
from elasticdl.cli.place import KUBERNETES, LOCAL
from elasticdl.errors import SpecError
from elasticdl.spec import JobKind, JobSpec, options

# Workers of many jobs share the cores: each has one, unless the person says otherwise.
DEFAULTS: dict[str, Any] = {"workers": {"threads": 1}}

ANSWER_S = 3.0  # a scheduler has decided by then


def taken_from(values: dict[str, Any], from_file: Mapping[str, Any], on: str) -> str | None:
    """The queue of this machine that is meant; None: no queue, or one of a cluster, which stays in `values`."""
    queue: str | None = values.get("queue")
    if queue is None:
        return None
    others = [one.name for one in options.OPTIONS if one.path.startswith("cluster.") and one.name != "queue"]
    is_on_cluster = on == KUBERNETES or any(values.get(name) not in (None, ()) for name in others)
    if on != LOCAL and (is_on_cluster or from_file.get("cluster")):
        if not queue:
            raise SpecError("--queue: which queue of Kueue? On Kubernetes it has a name: --queue=NAME")
        return None
    values["queue"] = None
    return queue


def submit(spec: JobSpec, name: str, priority: int) -> int:
    is_served = enqueue(spec, name, priority)
    click.echo(_answer(spec.name) if is_served else _unserved(spec.name))
    click.echo(f"  look at it   elasticdl status {spec.name}\n  end it       elasticdl stop {spec.name}")
    return 0


def enqueue(spec: JobSpec, name: str, priority: int) -> bool:
    """Check it, make its directory and hand it over, without a word. Whether a scheduler serves the queue."""
    from rich.console import Console

    from elasticdl.cli.submit import prepare
    from elasticdl.scheduler.local.submission import Submission

    if spec.kind not in (JobKind.TRAINING, JobKind.SCRIPT):
        raise SpecError(f"--queue: a {spec.kind} job cannot be interrupted and go on; start it without --queue")
    queue = home.queue()
    submission = Submission.of(spec, time.time(), os.environ, priority=priority, queue=name)
    is_served = queue.is_served()
    if is_served:
        _check_room(submission)
    prepare(spec, Console())
    # Only now: checks that take long, on data of many files, are no wait for the scheduler.
    queue.put(replace(submission, submitted_at=time.time()))
    return is_served


def _check_room(submission: Any) -> None:
    """A job that could not run here if it were alone is refused before anything is made."""
    from elasticdl.scheduler.room import Room
    from elasticdl.scheduler.snapshot import Node
    from elasticdl.scheduler.tiers import why_never

    report = home.queue().report()
    if report is None:
        return
    empty = Room(Node(name, devices) for name, devices in report.nodes.items())
    if why := why_never(empty, submission.job()):
        raise SpecError(f"--queue: job {submission.name!r} {why}; {_fix(submission.devices)}")


def _fix(devices: int) -> str:
    fewer = ", fewer --threads," if devices > 1 else ""
    return f"use a smaller --min_workers{fewer} or start the scheduler with a larger --budget"


def _answer(name: str) -> str:
    """What the scheduler makes of it."""
    from elasticdl.cli import queued

    deadline = time.monotonic() + ANSWER_S
    while time.monotonic() < deadline:
        standing = queued.standing(name)
        if standing is not None:
            return f"job {name} is queued: {queued.explain(standing)}"
        if why := queued.why_rejected(name):
            raise SpecError(why)
        time.sleep(0.05)
    return f"job {name} is queued; the scheduler has not decided on it yet"


def _unserved(name: str) -> str:
    return f"job {name} is queued, and waits: no scheduler runs; start one with `elasticdl scheduler`"
