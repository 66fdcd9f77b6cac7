"""The simulator with jobs whose ends are computed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from elasticdl.scheduler.interface import Decision, Policy
from elasticdl.scheduler.plan import Allocation, AllocationPlan
from elasticdl.scheduler.policies.elastic_first_come import ElasticFirstCome
from elasticdl.scheduler.policies.fifo_gang import FifoGang
from elasticdl.scheduler.snapshot import Snapshot, WorkersByNode
from elasticdl.sim.engine import NodeOutage, SimulationConfig, SimulationEngine
from elasticdl.sim.interface import AllocationSpan, ChangeCost, JobRecord
from elasticdl.sim.traces.trace import TraceJob
from tests.unit.sim.workloads import FREE, nodes, trace_job

ON_TICKS = replace(ElasticFirstCome(), decides_on_events=False, interval_s=60.0)


def simulate(policy: Policy, setting: SimulationConfig, *jobs: TraceJob) -> dict[str, JobRecord]:
    return {record.name: record for record in SimulationEngine(policy, jobs, setting).run()}


def ends(records: Mapping[str, JobRecord]) -> dict[str, Any]:
    return {name: record.finished_at and pytest.approx(record.finished_at) for name, record in records.items()}


@dataclass(frozen=True)
class Written(ElasticFirstCome):
    """Allocates what is written to the jobs that exist; `cannot`: times at which it fails."""

    allocated: tuple[tuple[str, WorkersByNode], ...] = ()
    share: float = 1.0
    cannot: tuple[float, ...] = ()

    def decide(self, snapshot: Snapshot, memory: Any) -> Decision:
        if snapshot.now in self.cannot:
            raise RuntimeError("cannot now")
        if not self.allocated:
            return ElasticFirstCome.decide(self, snapshot, memory)
        allocated = dict(self.allocated)
        plan = {job.name: Allocation(allocated.get(job.name, {}), "written", self.share) for job in snapshot.jobs}
        return Decision(AllocationPlan(plan))


def test_two_jobs_one_after_the_other() -> None:
    """100 with four workers take 25 s; the job that came at 10 starts then, and has 60 to do."""
    records = simulate(
        ElasticFirstCome(), SimulationConfig(nodes(4), FREE), trace_job("a", 100, 0, 4), trace_job("b", 60, 10, 4)
    )

    assert ends(records) == {"a": 25.0, "b": 40.0}
    assert (records["b"].waited_s, records["b"].started_at, records["b"].jct_s) == (15.0, 25.0, 30.0)
    assert records["b"].spans == [AllocationSpan("b", 25.0, 40.0, 4, 1)]
    assert records["b"].attained_s == 60.0


def test_two_jobs_at_once_and_the_second_grows_when_the_first_is_done() -> None:
    """b does 80 with two workers until 50, and 20 with four."""
    engine = SimulationEngine(
        ElasticFirstCome(), [trace_job("a", 100, 0, 2), trace_job("b", 100, 10, 4)], SimulationConfig(nodes(4), FREE)
    )
    records = {record.name: record for record in engine.run()}

    assert ends(records) == {"a": 50.0, "b": 55.0}
    assert records["b"].restarts == 1
    assert engine.device_usage == [(0.0, 0.0), (0.0, 2.0), (10.0, 4.0), (50.0, 2.0), (50.0, 4.0), (55.0, 0.0)]
    assert engine.device_s == pytest.approx(100 + 100)


def test_starts_and_changes_cost_the_configured_times() -> None:
    """b starts at 10, works from 15 to 55, does 80, is changed until 57, and has 20 left for four."""
    setting = SimulationConfig(nodes(4), ChangeCost(start_s=5.0, change_s=2.0))
    records = simulate(ElasticFirstCome(), setting, trace_job("a", 100, 0, 2), trace_job("b", 100, 10, 4))

    assert ends(records) == {"a": 55.0, "b": 62.0}


def test_a_policy_without_events_starts_jobs_on_ticks() -> None:
    records = simulate(ON_TICKS, SimulationConfig(nodes(4), FREE), trace_job("a", 40, 10, 4), trace_job("b", 40, 75, 4))

    assert records["a"].started_at == 60.0 and records["b"].started_at == 120.0
    assert ends(records) == {"a": 70.0, "b": 130.0}


def test_a_setting_may_tick_more_often_than_the_policy_wants() -> None:
    records = simulate(ON_TICKS, SimulationConfig(nodes(4), FREE, interval_s=15.0), trace_job("a", 40, 10, 4))

    assert records["a"].started_at == 15.0


def test_a_job_may_end_between_two_ticks_and_on_one() -> None:
    records = simulate(
        ON_TICKS,
        SimulationConfig(nodes(2), FREE),
        trace_job("between", 10, 0, 1),
        trace_job("on", 60, 0, 1),
        trace_job("next", 1, 61, 2),
    )

    assert ends(records) == {"between": 10.0, "on": 60.0, "next": 120.5}


def test_an_outage_takes_workers_and_gives_the_node_back() -> None:
    """Four workers until 10, two until 20, then four again: 40, 60, and 340 in 85 s."""
    setting = SimulationConfig(nodes(2, 2), FREE, (NodeOutage("n1", 10.0, 20.0),))
    records = simulate(ElasticFirstCome(), setting, trace_job("a", 400, 0, 4))

    assert ends(records) == {"a": 105.0}
    assert [span.workers for span in records["a"].spans] == [4, 2, 4]


@pytest.mark.parametrize("policy", [FifoGang(), ElasticFirstCome()])
def test_a_job_that_cannot_continue_on_the_remaining_nodes_waits_for_the_lost_one(policy: Policy) -> None:
    """A gang, or less than its minimum: 40 are done, the rest takes 90 s from 20 on."""
    setting = SimulationConfig(nodes(2, 2), FREE, (NodeOutage("n1", 10.0, 20.0),))
    records = simulate(policy, setting, trace_job("a", 400, 0, 4, min_workers=3))

    assert ends(records) == {"a": 110.0}
    assert records["a"].waited_s == 10.0


def test_an_outage_leaves_no_job_at_a_size_that_is_not_allowed() -> None:
    """Asked on ticks only: two of six workers are left, four or six are allowed."""
    setting = SimulationConfig(nodes(4, 2), FREE, (NodeOutage("n0", 70.0, 110.0),))
    records = simulate(ON_TICKS, setting, trace_job("a", 600, 0, 6, min_workers=1, sizes=(4, 6)))

    assert records["a"].waited_s == 50.0
    assert ends(records) == {"a": 150.0}  # 420 are done at 70; at 120 six go on


def test_an_outage_leaves_shares_unchanged() -> None:
    """Two halves of a device, two jobs on each of two nodes; one node goes."""
    both = {"n0": 1, "n1": 1}
    policy = replace(Written(allocated=(("a", both), ("b", both)), share=0.5), decides_on_events=False, interval_s=60.0)
    jobs = [trace_job(name, 200, 0, 2, may_share=True) for name in "ab"]
    engine = SimulationEngine(policy, jobs, SimulationConfig(nodes(1, 1), FREE, (NodeOutage("n1", 30.0, 60.0),)))
    records = {record.name: record for record in engine.run()}

    assert max(devices for time_s, devices in engine.device_usage if 30.0 <= time_s < 60.0) == 1.0
    assert ends(records) == {"a": 215.0, "b": 215.0}  # 30 + 15 are done at 60


def test_a_straggler_slows_the_whole_job_down() -> None:
    setting = SimulationConfig(nodes(2, 2), FREE, slowness={"n1": 2.0})
    records = simulate(ElasticFirstCome(), setting, trace_job("wide", 40, 0, 4))

    assert ends(records) == {"wide": 20.0}
    assert ends(simulate(ElasticFirstCome(), setting, trace_job("near", 40, 0, 2))) == {"near": 20.0}


def test_jobs_on_several_nodes_slow_each_other_while_they_share_one() -> None:
    """Half as fast until a is done at 20; b has done 20 of 40 then, and goes on with two a second."""
    policy = Written(allocated=(("a", {"n0": 1, "n1": 1}), ("b", {"n1": 1, "n2": 1}), ("alone", {"n0": 1})))
    jobs = [trace_job("a", 20, 0, 2), trace_job("b", 40, 0, 2), trace_job("alone", 15, 0, 1)]
    records = simulate(policy, SimulationConfig(nodes(2, 2, 2), FREE, interference=0.5), *jobs)

    assert ends(records) == {"alone": 15.0, "a": 20.0, "b": 30.0}


def test_a_job_that_never_fits_is_rejected_with_the_reason() -> None:
    records = simulate(
        ElasticFirstCome(),
        SimulationConfig(nodes(4), FREE),
        trace_job("huge", 10, 0, 9, min_workers=9),
        trace_job("a", 10, 1, 1),
    )

    assert "can never run here: needs 9 workers" in records["huge"].reason
    assert records["huge"].finished_at is None
    assert ends({"a": records["a"]}) == {"a": 11.0}


def test_a_job_refused_during_an_outage_is_reconsidered_when_the_node_returns() -> None:
    """Asked on ticks only: at 60 there is no room for it, at 120 there is."""
    setting = SimulationConfig(nodes(2, 2), FREE, (NodeOutage("n1", 50.0, 100.0),))
    records = simulate(ON_TICKS, setting, trace_job("a", 40, 10, 4, min_workers=4))

    assert ends(records) == {"a": 130.0}


@pytest.mark.parametrize(
    "policy", [Written(allocated=(("x", {}),)), replace(Written(allocated=(("x", {}),)), interval_s=60.0)]
)
def test_a_job_that_never_starts_is_rejected_in_the_end(policy: Policy) -> None:
    (record,) = simulate(policy, SimulationConfig(nodes(4), FREE), trace_job("a", 10, 0, 4)).values()

    assert "nothing that could change this will happen" in record.reason


def test_a_failing_policy_does_not_affect_running_jobs() -> None:
    """It fails when b comes at 10; a goes on, and at its end b is seen."""
    engine = SimulationEngine(
        Written(cannot=(10.0,)),
        [trace_job("a", 100, 0, 2), trace_job("b", 100, 10, 4)],
        SimulationConfig(nodes(4), FREE),
    )
    records = {record.name: record for record in engine.run()}

    assert ends(records) == {"a": 50.0, "b": 75.0}
    assert engine.loop.rejected_plans == 1 and "cannot now" in engine.policy_error


def test_a_job_alone_is_treated_fairly_and_one_that_waits_is_not() -> None:
    """b waits 25 s of its 40; for 25 of them there were two jobs: its fair share would be 1 / 1.625 of four devices."""
    records = simulate(
        ElasticFirstCome(),
        SimulationConfig(nodes(4), FREE),
        trace_job("a", 100, 0, 4),
        trace_job("b", 60, 0, 4, min_workers=4),
    )

    assert records["b"].fairness == pytest.approx(40.0 / (60.0 / (4 / 1.625)))
    alone = simulate(ElasticFirstCome(), SimulationConfig(nodes(4), ChangeCost(start_s=7.0)), trace_job("a", 100, 0, 4))
    assert alone["a"].fairness == pytest.approx(1.0)


def test_jobs_that_come_together_are_seen_together() -> None:
    jobs = [trace_job("a", 20, 5, 4), trace_job("b", 20, 5, 4)]

    assert ends(simulate(ElasticFirstCome(), SimulationConfig(nodes(4), FREE), *jobs)) == {"a": 15.0, "b": 15.0}


def test_an_empty_trace_is_simulated() -> None:
    assert simulate(ElasticFirstCome(), SimulationConfig(nodes(4))) == {}
