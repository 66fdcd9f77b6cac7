"""What the benchmark of pods reads off the files of their processes, and makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.cluster import noted
from benchmarks.cluster.chain import Chain
from benchmarks.cluster.noted import Step
from benchmarks.cluster.timeline import words


def steps(process: str, first: int, *times: float) -> list[Step]:
    return [Step(ended_at, number, process) for number, ended_at in enumerate(times, first)]


def test_steps_of_all_processes_of_a_pod_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "w-0").mkdir()
    (tmp_path / "w-0" / "1.steps").write_bytes(b"3000000000 0\n4000000000 1\n50000")
    (tmp_path / "w-0" / "9.steps").write_bytes(b"1000000000 0\n")

    assert noted.steps(tmp_path) == {"w-0": [Step(1.0, 0, "9"), Step(3.0, 0, "1"), Step(4.0, 1, "1")]}


def test_a_mark_is_the_first_after_an_instant(tmp_path: Path) -> None:
    (tmp_path / "w-0").mkdir()
    (tmp_path / "w-0" / "1.marks").write_bytes(b"1000000000 python\n2000000000 python\n3000000000 imports torch\n")

    assert noted.mark(tmp_path, "w-0", "python", after=0.0) == 1.0
    assert noted.mark(tmp_path, "w-0", "python", after=1.0) == 2.0
    assert noted.mark(tmp_path, "w-0", "imports torch", after=1.0) == 3.0
    assert noted.mark(tmp_path, "w-0", "python", after=2.0) is None


def test_a_step_the_victim_had_a_part_in_is_not_the_next_one() -> None:
    files = {"stays": steps("1", 5, 1.0, 2.02, 3.0), "goes": steps("1", 5, 1.0, 2.0)}

    assert noted.first_without(files, ["stays"], "goes", after=1.5) == Step(3.0, 7, "1")


def test_a_process_begun_anew_counts_though_it_goes_back_to_a_checkpoint() -> None:
    files = {"stays": steps("1", 60, 1.0, 2.0) + steps("2", 50, 30.0), "goes": steps("1", 60, 1.0, 2.0)}

    assert noted.first_without(files, ["stays"], "goes", after=1.5) == Step(30.0, 50, "2")


def test_a_gap_lasts_until_now_where_no_step_came_any_more() -> None:
    files = {"a": steps("1", 0, 1.0, 2.0), "b": steps("1", 0, 1.5)}

    assert noted.longest_gap_s(files, ["a", "b"], start=1.6, stop=6.0) == pytest.approx(4.0)


def test_a_chain_says_whose_each_link_is() -> None:
    chain = Chain(10.0)
    chain.until(11.0, "kubectl", kubernetes=True)
    chain.until(None, "nobody noted it")
    chain.until(11.5, "the operator")
    chain.until(13.5, "the pod", kubernetes=True)
    chain.until(14.0, "the worker")

    assert (chain.total_s, chain.own_s) == (4.0, 1.0)
    assert chain.parts() == {"kubectl": 1.0, "the operator": 0.5, "the pod": 2.0, "the worker": 0.5}


def test_a_preempted_pod_is_told_from_one_that_is_deleted() -> None:
    pod = {
        "metadata": {"name": "w-0", "deletionTimestamp": "2024-01-01T00:00:00Z"},
        "spec": {"nodeName": "node-1"},
        "status": {"containerStatuses": [{"state": {"running": {}}}]},
    }
    target = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}

    assert words(pod) == ["created", "scheduled", "running", "deleted"]
    assert "preempted" in words(pod | {"status": {"conditions": [target]}})
