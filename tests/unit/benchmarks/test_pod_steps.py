"""What the benchmark of pods reads from the files of their processes, and computes from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.cluster import pod_steps
from benchmarks.cluster.latency import LatencyBreakdown
from benchmarks.cluster.pod_steps import Step
from benchmarks.cluster.timeline import true_conditions


def steps(process: str, first: int, *times: float) -> list[Step]:
    return [Step(ended_at, number, process) for number, ended_at in enumerate(times, first)]


def test_steps_of_all_processes_of_a_pod_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "w-0").mkdir()
    (tmp_path / "w-0" / "1.steps").write_bytes(b"3000000000 0\n4000000000 1\n50000")
    (tmp_path / "w-0" / "9.steps").write_bytes(b"1000000000 0\n")

    assert pod_steps.read_steps(tmp_path) == {"w-0": [Step(1.0, 0, "9"), Step(3.0, 0, "1"), Step(4.0, 1, "1")]}


def test_a_mark_is_the_first_after_an_instant(tmp_path: Path) -> None:
    (tmp_path / "w-0").mkdir()
    (tmp_path / "w-0" / "1.marks").write_bytes(b"1000000000 python\n2000000000 python\n3000000000 imports torch\n")

    assert pod_steps.find_mark(tmp_path, "w-0", "python", after=0.0) == 1.0
    assert pod_steps.find_mark(tmp_path, "w-0", "python", after=1.0) == 2.0
    assert pod_steps.find_mark(tmp_path, "w-0", "imports torch", after=1.0) == 3.0
    assert pod_steps.find_mark(tmp_path, "w-0", "python", after=2.0) is None


def test_a_step_with_the_victim_is_not_the_next_one() -> None:
    steps_by_pod = {"stays": steps("1", 5, 1.0, 2.02, 3.0), "goes": steps("1", 5, 1.0, 2.0)}

    assert pod_steps.first_step_without(steps_by_pod, ["stays"], "goes", after=1.5) == Step(3.0, 7, "1")


def test_a_restarted_process_counts_though_it_goes_back_to_a_checkpoint() -> None:
    steps_by_pod = {"stays": steps("1", 60, 1.0, 2.0) + steps("2", 50, 30.0), "goes": steps("1", 60, 1.0, 2.0)}

    assert pod_steps.first_step_without(steps_by_pod, ["stays"], "goes", after=1.5) == Step(30.0, 50, "2")


def test_a_gap_lasts_until_now_if_no_step_follows() -> None:
    steps_by_pod = {"a": steps("1", 0, 1.0, 2.0), "b": steps("1", 0, 1.5)}

    assert pod_steps.longest_gap_s(steps_by_pod, ["a", "b"], start=1.6, stop=6.0) == pytest.approx(4.0)


def test_a_latency_is_divided_into_kubernetes_and_own_parts() -> None:
    latency = LatencyBreakdown(10.0)
    latency.add_part(11.0, "kubectl", is_kubernetes=True)
    latency.add_part(None, "not recorded")
    latency.add_part(11.5, "the operator")
    latency.add_part(13.5, "the pod", is_kubernetes=True)
    latency.add_part(14.0, "the worker")

    assert (latency.total_s, latency.own_s) == (4.0, 1.0)
    assert latency.durations_s() == {"kubectl": 1.0, "the operator": 0.5, "the pod": 2.0, "the worker": 0.5}


def test_a_preempted_pod_differs_from_a_deleted_one() -> None:
    pod = {
        "metadata": {"name": "w-0", "deletionTimestamp": "2024-01-01T00:00:00Z"},
        "spec": {"nodeName": "node-1"},
        "status": {"containerStatuses": [{"state": {"running": {}}}]},
    }
    target = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}

    assert true_conditions(pod) == ["created", "scheduled", "running", "deleted"]
    assert "preempted" in true_conditions(pod | {"status": {"conditions": [target]}})
