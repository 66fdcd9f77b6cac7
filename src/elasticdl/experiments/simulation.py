"""The experiments of the original ElasticDL in the simulator: two jobs that do not both fit, and a service above them.

Two jobs: a cluster of 320 CPUs, two jobs of 175 workers of one CPU, the second 300 s after the first. The original:
in gangs the first ended at 650 s and both at 1300 s; elastic, both at 1100 s and hardly anybody waited. The work of
our jobs is chosen such that the first gang ends at 650 s; all workers are equally fast.

Mixed: training below an online service whose load goes up and down. The original says: more than 90 % of the cluster
in use, and the service never waits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from elasticdl.experiments.results import ExperimentResult, result_of_records
from elasticdl.scheduler import policies
from elasticdl.scheduler.snapshot import NodeInfo
from elasticdl.sim.engine import SimulationConfig, SimulationEngine
from elasticdl.sim.interface import ChangeCost
from elasticdl.sim.traces.recorded import RecordedWorkload, ScalingAssumption
from elasticdl.sim.traces.trace import TraceJob

CPUS, CPUS_PER_NODE = 320, 16
COST = ChangeCost(start_s=5.9, change_s=0.4, join_s=3.4)  # as measured with ElasticDL on one machine
GANG_POLICY = "fifo-gang"
POLICIES = (GANG_POLICY, "elastic-first-come", "max-min")

WORKERS, DELAY_S, FIRST_END_S = 175, 300.0, 650.0
CLAIMED_END_S = {GANG_POLICY: 1300.0}  # when both jobs were over; all others: …
CLAIMED_ELASTIC_END_S = 1100.0

HORIZON_S, STEP_S = 3600.0, 60.0
SERVICE, SERVICE_PRIORITY, REPLICAS = "service", 10, 10  # CPUs of the service start and end in groups of this many
MIN_LOAD, MAX_LOAD = 60, 250
CLAIMED_UTILIZATION = 0.9


@dataclass(frozen=True, slots=True)
class ServiceLoad:
    """The CPUs that the service needs during a span of time."""

    start_s: float
    end_s: float
    cpus: int


def cluster_nodes() -> tuple[NodeInfo, ...]:
    return tuple(NodeInfo(f"node-{index:02}", CPUS_PER_NODE) for index in range(CPUS // CPUS_PER_NODE))


def simulate_two_jobs(policy: str) -> ExperimentResult:
    """Simulates two jobs until both have ended."""
    work_s = FIRST_END_S - COST.start_s
    jobs = [
        TraceJob(
            name,
            submitted_at,
            RecordedWorkload("training", WORKERS, work_s, ScalingAssumption(1.0, 1.0)),
            WORKERS,
            1,
            WORKERS,
        )
        for name, submitted_at in (("first", 0.0), ("second", DELAY_S))
    ]
    return _simulate(policy, jobs, math.inf)


def simulate_mixed(policy: str) -> ExperimentResult:
    """Simulates an hour. Each of two trainings asks for half the cluster, can use all of it, and lasts longer."""
    training = [
        TraceJob(
            name,
            submitted_at,
            RecordedWorkload("training", CPUS // 2, 86400.0, ScalingAssumption(1.0, 2.0)),
            CPUS // 2,
            1,
            CPUS,
        )
        for name, submitted_at in (("training-1", 0.0), ("training-2", 300.0))
    ]
    service = [
        TraceJob(
            f"{SERVICE}-{index:03}",
            load.start_s,
            RecordedWorkload(SERVICE, load.cpus, load.end_s - load.start_s - COST.start_s, ScalingAssumption(1.0, 1.0)),
            load.cpus,
            load.cpus,
            load.cpus,
            priority=SERVICE_PRIORITY,
        )
        for index, load in enumerate(service_loads())
    ]
    return _simulate(policy, sorted([*training, *service], key=lambda job: job.submitted_at), HORIZON_S)


def service_demand(now: float) -> int:
    """Returns the CPUs that the service needs: waves of 20 and 7 minutes, in whole groups of replicas."""
    wave = 0.5 - 0.38 * math.cos(2 * math.pi * now / 1200) - 0.12 * math.sin(2 * math.pi * now / 420)
    return int((MIN_LOAD + (MAX_LOAD - MIN_LOAD) * wave) / REPLICAS) * REPLICAS


def service_loads() -> list[ServiceLoad]:
    """Returns the load as groups of replicas: they start when it rises; when it falls, the youngest end first."""
    loads: list[ServiceLoad] = []
    living: list[float] = []  # when each group started
    for step in range(int(HORIZON_S / STEP_S) + 1):
        now = step * STEP_S
        groups = service_demand(now) // REPLICAS if now < HORIZON_S else 0
        while len(living) > groups:
            loads.append(ServiceLoad(living.pop(), now, REPLICAS))
        living += [now] * (groups - len(living))
    return sorted(loads, key=lambda load: (load.start_s, load.end_s))


def _simulate(policy: str, jobs: list[TraceJob], until_s: float) -> ExperimentResult:
    engine = SimulationEngine(policies.load_policy(policy), iter(jobs), SimulationConfig(cluster_nodes(), COST))
    records = []

    def check(now: float, _active: int) -> None:
        if now >= until_s:
            raise _HorizonReached

    try:
        for record in engine.run(check):
            records.append(record)
    except _HorizonReached:
        for job in engine.active_jobs.values():
            job.finish(engine.now)
            records.append(job.record)
    return result_of_records(policy, CPUS, records, until_s, COST.start_s)


class _HorizonReached(Exception):
    pass


def simulate_all_policies(name: str) -> Iterator[ExperimentResult]:
    run = {"two-jobs": simulate_two_jobs, "mixed": simulate_mixed}[name]
    return (run(policy) for policy in POLICIES)
