"""What the experiments on a cluster compute from the watch of pods."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from benchmarks.slot_usage import SLOT, PodTrace, StepFunction


def pod(name: str, phase: str = "Running", *, gated: bool = False, job: str = "a", **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name, "labels": {"elasticdl.org/job": job}, "creationTimestamp": "2026-01-01T00:00:00Z", **metadata,
        },
        "spec": {
            "containers": [{"resources": {"limits": {SLOT: "1"}}}],
            **({"schedulingGates": [{"name": "gang"}]} if gated else {}),
        },
        "status": {"phase": phase},
    }  # fmt: skip


def test_a_mean_is_weighted_with_time() -> None:
    usage = StepFunction.from_spans([(0.0, 10.0, 4.0), (5.0, None, 2.0)])

    assert usage.steps == [(0.0, 4.0), (5.0, 6.0), (10.0, 2.0)]
    assert usage.mean(0.0, 10.0) == 5.0
    assert usage.mean(8.0, 12.0) == 4.0
    assert usage.mean(-4.0, 4.0) == 2.0


def test_the_worst_window_lies_anywhere() -> None:
    usage = StepFunction([(0.0, 8.0), (7.0, 4.0), (9.0, 8.0)])

    assert usage.lowest_mean(0.0, 20.0, 2.0) == 4.0
    assert usage.lowest_mean(0.0, 20.0, 4.0) == 6.0
    assert usage.lowest_mean(9.0, 20.0, 4.0) == 8.0


def test_step_functions_add_up() -> None:
    both = StepFunction([(0.0, 1.0), (4.0, 0.0)]) + StepFunction([(2.0, 3.0)])

    assert both.steps == [(0.0, 1.0), (2.0, 4.0), (4.0, 3.0)]


def test_a_pod_counts_while_its_container_runs() -> None:
    trace = PodTrace("w", "a", 1, 1.0)
    trace.update(pod("w", "Pending"), 1.0)
    assert trace.running == (1.0, None, 0)
    trace.update(pod("w"), 3.0)
    trace.update(pod("w", deletionTimestamp="2026-01-01T00:00:09Z"), 7.0)
    trace.update(None, 8.0)

    assert trace.running == (3.0, 8.0, 1)
    assert trace.leaving_at == 7.0
    assert trace.serving[2] == 0  # it was never ready


@pytest.fixture
def gang(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    yield import_module("gang")
    for name in ("gang", "slot_usage"):
        sys.modules.pop(name, None)


def test_a_gang_starts_whole_or_not_at_all(gang: Any) -> None:
    waiting = [pod(f"b-{n}", "Pending", gated=True, job="b") for n in range(3)]
    running = [pod(f"a-{n}") for n in range(3)]

    assert gang.admissible_pods([*running, *waiting], 6, 3) == ["b-0", "b-1", "b-2"]
    assert gang.admissible_pods([*running, *waiting], 5, 3) == []
    assert gang.admissible_pods([*running, *waiting[:2]], 8, 3) == []  # not all of it is there yet
    assert gang.admissible_pods([*running[:2], pod("a-2", "Succeeded"), *waiting], 5, 3) == ["b-0", "b-1", "b-2"]
