"""Properties of every small trace: all jobs end, no work is lost or added, no device is used twice."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.scheduler.policies import load_policy
from elasticdl.sim.engine import NodeOutage, SimulationConfig, SimulationEngine
from elasticdl.sim.interface import ChangeCost, JobRecord
from elasticdl.sim.traces.trace import TraceJob
from tests.properties import examples
from tests.unit.sim.workloads import Work, nodes

POLICIES = pytest.mark.parametrize("name", ["elastic-first-come", "goodput", "fifo-gang"])
EXAMPLES = settings(max_examples=examples(40))


def trace_of(seed: int, jobs: int) -> list[TraceJob]:
    """Returns the same jobs each time, because workloads remember what they did."""
    chance = Random(seed)
    records = []
    submitted_at = 0.0
    for index in range(jobs):
        submitted_at += chance.choice((0.0, 1.0, 50.0, 333.3))
        min_workers = chance.choice((1, 1, 2))
        max_workers = min_workers + chance.choice((0, 2, 6))
        body = Work(
            chance.choice((0.1, 10.0, 777.7, 5e3)), chance.choice((0.5, 0.9, 1.0)), is_known=chance.random() < 0.7
        )
        records.append(
            TraceJob(
                f"j{index}",
                submitted_at,
                body,
                max_workers,
                min_workers,
                max_workers,
                priority=chance.choice((0, 0, 1)),
            )
        )
    return records


def setting_of(seed: int) -> SimulationConfig:
    chance = Random(seed)
    cost = chance.choice((ChangeCost.uniform(0.0), ChangeCost.uniform(30.0), ChangeCost(10.0, 0.5, 5.0)))
    cluster = nodes(8, *(chance.choice((1, 4)) for _ in range(chance.randint(0, 2))))
    outages = (
        (NodeOutage("n1", 20.0, 400.0), NodeOutage("n1", 600.0, 601.0))
        if chance.random() < 0.5 and len(cluster) > 1
        else ()
    )
    return SimulationConfig(cluster, cost, outages, interval_s=chance.choice((0.0, 60.0)))


def ran(name: str, seed: int, jobs: int) -> tuple[SimulationEngine, dict[str, JobRecord], list[TraceJob]]:
    trace = trace_of(seed, jobs)
    engine = SimulationEngine(load_policy(name), trace, setting_of(seed))
    return engine, {record.name: record for record in engine.run()}, trace


@POLICIES
@EXAMPLES
@given(seed=st.integers(0, 2**32), jobs=st.integers(1, 8))
def test_every_job_ends_with_all_of_its_work_done_and_no_sooner_than_alone(name: str, seed: int, jobs: int) -> None:
    engine, records, trace = ran(name, seed, jobs)

    assert set(records) == {trace_job.name for trace_job in trace}
    for trace_job in trace:
        record, body = records[trace_job.name], trace_job.workload
        assert isinstance(body, Work)
        assert record.reason == "" and record.jct_s is not None and record.started_at is not None
        assert body.done == pytest.approx(body.total, rel=1e-6)
        fastest_s = body.isolated_duration_s(trace_job.max_workers) + engine.config.cost.start_s
        assert record.jct_s >= fastest_s - 1e-4
        assert record.started_at >= trace_job.submitted_at


@POLICIES
@EXAMPLES
@given(seed=st.integers(0, 2**32), jobs=st.integers(1, 8))
def test_devices_are_never_used_twice_and_all_time_is_accounted_for(name: str, seed: int, jobs: int) -> None:
    engine, records, _ = ran(name, seed, jobs)
    capacity = sum(node.devices for node in engine.config.nodes)

    assert all(0 <= devices <= capacity for _, devices in engine.device_usage)
    assert engine.device_s <= capacity * engine.now + 1e-6
    assert engine.device_s == pytest.approx(sum(record.attained_s for record in records.values()), abs=1e-3)
    for record in records.values():
        drawn = sum(span.workers * (span.end_s - span.start_s) for span in record.spans)
        assert drawn == pytest.approx(record.attained_s, abs=1e-3)
        assert all(record.end_s <= two.start_s + 1e-9 for record, two in pairwise(record.spans))
        has_s = sum(span.end_s - span.start_s for span in record.spans)
        assert record.waited_s + has_s == pytest.approx(record.jct_s, abs=1e-3)


@POLICIES
@settings(max_examples=examples(10))
@given(seed=st.integers(0, 2**32), jobs=st.integers(1, 8))
def test_the_same_trace_has_the_same_end(name: str, seed: int, jobs: int) -> None:
    (record, first, _), (two, second, _) = ran(name, seed, jobs), ran(name, seed, jobs)

    assert first == second
    assert (record.device_usage, record.device_s, record.loop.decisions) == (
        two.device_usage,
        two.device_s,
        two.loop.decisions,
    )
