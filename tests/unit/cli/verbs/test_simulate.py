"""`elasticdl simulate`: tables, files, and what it refuses."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from elasticdl.cli.screens import simulation_table
from elasticdl.cli.verbs.simulate import parse_policy_names
from elasticdl.scheduler import policies
from elasticdl.sim import cluster, runner
from elasticdl.sim.engine import SimulationConfig
from elasticdl.sim.traces import source
from tests.unit.cli.conftest import Run

SMALL = ("--trace", "synthetic:jobs=8,per_hour=60,duration_scale=0.05", "--nodes", "2", "--processes", "1")


def test_all_policies_are_listed_with_a_sentence_each(elasticdl: Run) -> None:
    lines = elasticdl("simulate", "--list-policies").output.splitlines()

    assert [line.split()[0] for line in lines] == sorted(policies.POLICY_REGISTRY)
    assert all(len(line.split()) > 4 for line in lines)


def test_the_table_has_a_row_for_each_policy_and_the_files_have_all_results(elasticdl: Run, tmp_path: Path) -> None:
    files = ("--json", tmp_path / "r.json", "--parquet", tmp_path / "r.parquet", "--report", tmp_path / "report")
    result = elasticdl("simulate", "--policy", "fifo-gang,max-min", *SMALL, *files)

    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["policy", "fifo-gang", "max-min"]
    document = json.loads((tmp_path / "r.json").read_text())
    assert document["command"].startswith("elasticdl simulate --policy fifo-gang,max-min --trace synthetic:jobs=8")
    assert [len(policy["jobs"]) for policy in document["policies"]] == [8, 8]
    assert (tmp_path / "r.parquet").exists() and (tmp_path / "report" / "index.html").exists()


def test_jobs_that_never_fit_are_reported_with_the_reason(elasticdl: Run, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("name,submitted_s,duration_s,workers,minimum,maximum\nsmall,0,9,1,1,1\nhuge,0,9,99,99,99\n")
    result = elasticdl("simulate", "--policy", "fifo-gang", "--trace", trace, "--nodes", 2)

    assert "fifo-gang: 1 jobs never ran:" in result.output
    assert "huge: can never run here: needs 99 workers" in result.output


def test_a_narrow_terminal_has_a_column_for_each_policy() -> None:
    setting = SimulationConfig(cluster.parse_nodes(2, 4))
    trace = source.open_trace("synthetic:jobs=4,duration_scale=0.01")
    outcomes = [
        runner.simulate(name, trace, setting, lambda _: None, lambda: False)
        for name in ("fifo-gang", "max-min", "elastic-first-come")
    ]
    console = Console(file=io.StringIO(), width=50, force_terminal=True, color_system=None)

    simulation_table.print_table(outcomes, console)

    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[0].split() == ["policy", "fifo-gang", "max-min"]
    assert ["policy", "elastic-first-come"] in [line.split() for line in lines]
    assert all(len(line) <= 50 for line in lines) and not any("…" in line for line in lines)


def test_parameters_of_a_policy_apply_only_to_it() -> None:
    assert parse_policy_names("a,b:x=1,y=2,c") == ["a", "b:x=1,y=2", "c"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "expected --policy and --trace"),
        (("--policy", "nobody", *SMALL), "no policy 'nobody'"),
        (("--policy", "fifo-gang,fifo-gang", *SMALL), "received fifo-gang twice"),
        (("--policy", "fifo-gang", *SMALL, "--costs", "stop=3"), "--costs: expected start=S"),
        (("--policy", "fifo-gang", *SMALL, "--costs", "start=nan"), "--costs: expected start=S"),
        (("--policy", "fifo-gang", *SMALL, "--costs", "start=3", "--restart-cost", "3"), "received both"),
        (("--policy", "fifo-gang", *SMALL, "--stragglers", "node-7=2"), "expected a node, node-00 to node-01"),
        (("--policy", "fifo-gang", *SMALL, "--failures", "often"), "--failures: expected"),
        (("--policy", "fifo-gang", *SMALL, "--kinds", "a100:3"), "--nodes says 2"),
        (("--policy", "fifo-gang", *SMALL, "--json", "no/where/r.json"), "expected a file in a directory that exists"),
        (("--policy", "fifo-gang", "--trace", "nothing.csv"), "expected a file, or 'synthetic'"),
        (("--policy", "fifo-gang", *SMALL, "--interference", "1"), "--interference"),
    ],
)
def test_senseless_options_are_refused(elasticdl: Run, words: tuple[str, ...], complaint: str) -> None:
    result = elasticdl("simulate", *words)

    assert result.exit_code == 2
    assert complaint in result.stderr
