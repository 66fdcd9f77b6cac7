"""Complete simulations: reproducible results, consistent numbers, and the effect of failures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from elasticdl.sim import cluster
from elasticdl.sim.engine import NodeOutage, SimulationConfig
from elasticdl.sim.interface import ChangeCost
from elasticdl.sim.results import files, html
from elasticdl.sim.results.outcome import SimulationOutcome
from elasticdl.sim.runner import SimulationProgress, simulate, simulate_all
from elasticdl.sim.traces.source import TraceSource, open_trace

GOLDEN = Path(__file__).parents[2] / "sim"
TRACE = open_trace("synthetic:jobs=25,per_hour=30,seed=5,duration_scale=0.1")
NODES = cluster.parse_nodes(4, 4)
SETTING = SimulationConfig(
    NODES, ChangeCost.uniform(30.0), cluster.NodeFailures(tuple(node.name for node in NODES), 20_000.0, 900.0, seed=3)
)


def ignore(progress: SimulationProgress) -> None:
    pass


def run_policy(policy: str, source: TraceSource = TRACE, setting: SimulationConfig = SETTING) -> SimulationOutcome:
    return simulate(policy, source, setting, ignore, lambda: False)


def policy_document(outcome: SimulationOutcome) -> object:
    (document,) = files.results_document([outcome], "", {})["policies"]
    return {key: value for key, value in document.items() if key != "timing"}


@pytest.mark.parametrize("policy", ["fifo-gang", "tiresias", "elastic-first-come", "max-min"])
def test_the_same_seed_gives_the_same_results_as_recorded(policy: str) -> None:
    first, again = run_policy(policy), run_policy(policy)
    numbers = policy_document(first)["metrics"]  # type: ignore[index]
    golden = json.loads((GOLDEN / "golden.json").read_text())

    assert policy_document(first) == policy_document(again)
    # Recorded results: a change of these numbers must be explained.
    assert numbers == pytest.approx(golden[policy], rel=1e-6)


def test_separate_processes_give_the_same_results() -> None:
    names = ["fifo-gang", "max-min"]
    seen: list[SimulationProgress] = []

    apart = {outcome.policy: outcome for outcome in simulate_all(names, TRACE, SETTING, 2, seen.append, lambda: False)}

    assert {name: policy_document(outcome) for name, outcome in apart.items()} == {
        name: policy_document(run_policy(name)) for name in names
    }
    assert {outcome.policy for outcome in seen} == set(names)


def test_a_job_alone_takes_its_duration_and_the_cost_of_its_start(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("name,submitted_s,duration_s,workers,minimum,maximum\nmine,10,100,4,4,4\nhuge,20,100,99,99,99\n")

    outcome = run_policy("fifo-gang", open_trace(str(path)), SimulationConfig(NODES, ChangeCost(5.0, 1.0, 0.0)))

    assert (outcome.finished_jobs[0].name, outcome.finished_jobs[0].jct_s) == ("mine", 105.0)
    assert outcome.metrics.makespan_s == 105.0
    assert outcome.metrics.utilization == pytest.approx(4 / 16)
    assert [(job.name, job.reason) for job in outcome.never_started_jobs] == [
        ("huge", "can never run here: needs 99 workers of 1 device, the empty cluster has room for 16")
    ]


def test_a_job_that_fits_only_when_all_nodes_are_there_waits_for_them(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("name,submitted_s,duration_s,workers,minimum,maximum\nsmall,0,500,1,1,1\nwide,10,100,16,16,16\n")
    setting = SimulationConfig(NODES, ChangeCost.uniform(0.0), (NodeOutage("node-03", 5.0, 50.0),))

    outcome = run_policy("fifo-gang", open_trace(str(path)), setting)

    assert [(job.name, job.started_at) for job in outcome.finished_jobs] == [("small", 0.0), ("wide", 500.0)]


def test_stragglers_and_restarts_cost_time() -> None:
    calm = run_policy("fifo-gang", setting=replace(SETTING, outages=()))
    slow = run_policy("fifo-gang", setting=replace(SETTING, outages=(), slowness={node.name: 2.0 for node in NODES}))
    dear = run_policy("fifo-gang", setting=replace(SETTING, outages=(), cost=ChangeCost.uniform(600.0)))

    assert slow.metrics.mean_jct_s > 1.5 * calm.metrics.mean_jct_s
    assert dear.metrics.mean_jct_s > calm.metrics.mean_jct_s + 500


def test_a_stopped_simulation_returns_its_partial_results() -> None:
    outcome = simulate("goodput", open_trace("synthetic:jobs=500,per_hour=60"), SETTING, ignore, lambda: True)

    assert outcome.stopped_at is not None and outcome.unfinished > 0
    assert policy_document(outcome)["is_complete"] is False  # type: ignore[index]


def test_the_page_is_self_contained_and_names_its_command(tmp_path: Path) -> None:
    outcome = run_policy("max-min")

    text = html.write_report(tmp_path / "report", [outcome], "elasticdl simulate <x>", {"trace": "t"}).read_text()

    assert "elasticdl simulate &lt;x&gt;" in text
    assert "http" not in text and 'src="data:image/png;base64,' in text
    for name in ("utilization", "completion", "gantt-max-min"):
        assert (tmp_path / "report" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_parquet_has_a_row_for_each_job_and_the_command(tmp_path: Path) -> None:
    from pyarrow import parquet

    outcome = run_policy("max-min")
    files.write_parquet(tmp_path / "jobs.parquet", [outcome], "the command")

    document = parquet.read_table(tmp_path / "jobs.parquet")
    assert document.num_rows == 25
    assert document.schema.metadata[b"command"] == b"the command"
    assert sorted(document["jct_s"].to_pylist()) == sorted(
        job.jct_s for job in outcome.finished_jobs if job.jct_s is not None
    )
