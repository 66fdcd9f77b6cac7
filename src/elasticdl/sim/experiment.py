"""The experiments of the original ElasticDL in the simulator: two jobs that do not both fit, and a service above them.

Two jobs: a cluster of 320 CPUs, two jobs of 175 workers of one CPU, the second 300 s after the first. The original:
in gangs the first ended at 650 s and both at 1300 s; elastic, both at 1100 s and hardly anybody waited. Our jobs have
just so much work that the first gang ends at 650 s; a worker is worth as much as another.

Mixed: training below an online service whose load goes up and down. The original says: more than 90 % of the cluster
in use, and the service never waits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from elasticdl.scheduler import policies
from elasticdl.scheduler.snapshot import Node
from elasticdl.sim.course import Course, course_of
from elasticdl.sim.engine import Engine, Setting
from elasticdl.sim.interface import Cost
from elasticdl.sim.plain import Plain, Scaling
from elasticdl.sim.trace import TraceJob

CPUS, PER_NODE = 320, 16
COST = Cost(start_s=5.9, change_s=0.4, join_s=3.4)  # as measured with ElasticDL on one machine
GANG = "fifo-gang"
POLICIES = (GANG, "elastic-first-come", "courteous")

WORKERS, DELAY_S, FIRST_END_S = 175, 300.0, 650.0
CLAIMED_S = {GANG: 1300.0}  # when both jobs were over; all others: …
CLAIMED_ELASTIC_S = 1100.0

HORIZON_S, STEP_S = 3600.0, 60.0
SERVICE, SERVICE_PRIORITY, REPLICAS = "service", 10, 10  # CPUs of the service come and go so many at once
LEAST_LOAD, MOST_LOAD = 60, 250
CLAIMED_USE = 0.9


@dataclass(frozen=True, slots=True)
class Load:
    """CPUs that the service wants from then to then."""

    start_s: float
    end_s: float
    cpus: int


def nodes() -> tuple[Node, ...]:
    return tuple(Node(f"node-{index:02}", PER_NODE) for index in range(CPUS // PER_NODE))


def two_jobs(policy: str) -> Course:
    """Until both are over."""
    work_s = FIRST_END_S - COST.start_s
    jobs = [
        TraceJob(name, at, Plain("training", WORKERS, work_s, Scaling(1.0, 1.0)), WORKERS, 1, WORKERS)
        for name, at in (("first", 0.0), ("second", DELAY_S))
    ]
    return _run(policy, jobs, math.inf)


def mixed(policy: str) -> Course:
    """An hour. The two trainings ask for half the cluster each, can use all of it, and have more work than that."""
    training = [
        TraceJob(name, at, Plain("training", CPUS // 2, 86400.0, Scaling(1.0, 2.0)), CPUS // 2, 1, CPUS)
        for name, at in (("training-1", 0.0), ("training-2", 300.0))
    ]
    service = [
        TraceJob(
            f"{SERVICE}-{index:03}",
            one.start_s,
            Plain(SERVICE, one.cpus, one.end_s - one.start_s - COST.start_s, Scaling(1.0, 1.0)),
            one.cpus,
            one.cpus,
            one.cpus,
            priority=SERVICE_PRIORITY,
        )
        for index, one in enumerate(loads())
    ]
    return _run(policy, sorted([*training, *service], key=lambda job: job.submitted_at), HORIZON_S)


def wanted(at: float) -> int:
    """CPUs of the service: waves of 20 and of 7 minutes, in whole groups of replicas."""
    wave = 0.5 - 0.38 * math.cos(2 * math.pi * at / 1200) - 0.12 * math.sin(2 * math.pi * at / 420)
    return int((LEAST_LOAD + (MOST_LOAD - LEAST_LOAD) * wave) / REPLICAS) * REPLICAS


def loads() -> list[Load]:
    """As groups of replicas that start when the load rises; the youngest end first when it falls."""
    found: list[Load] = []
    living: list[float] = []  # when each group started
    for step in range(int(HORIZON_S / STEP_S) + 1):
        at = step * STEP_S
        groups = wanted(at) // REPLICAS if at < HORIZON_S else 0
        while len(living) > groups:
            found.append(Load(living.pop(), at, REPLICAS))
        living += [at] * (groups - len(living))
    return sorted(found, key=lambda one: (one.start_s, one.end_s))


def _run(policy: str, jobs: list[TraceJob], until_s: float) -> Course:
    engine = Engine(policies.named(policy), iter(jobs), Setting(nodes(), COST))
    records = []

    def check(now: float, _active: int) -> None:
        if now >= until_s:
            raise _Over

    try:
        for record in engine.run(check):
            records.append(record)
    except _Over:
        for job in engine.active.values():
            job.end(engine.now)
            records.append(job.record)
    return course_of(policy, CPUS, records, until_s, COST.start_s)


class _Over(Exception):
    pass


def all_of(name: str) -> Iterator[Course]:
    run = {"two-jobs": two_jobs, "mixed": mixed}[name]
    return (run(policy) for policy in POLICIES)
