"""The timeline of a job and its figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elasticdl.jobs import timeline, timeline_figure
from elasticdl.jobs.timeline import MetricCurve, WorkerLifetime

EVENTS: list[dict[str, Any]] = [
    {"at": 1.0, "kind": "worker-launched", "replica": "worker-0"},
    {"at": 1.0, "kind": "worker-launched", "replica": "worker-1"},
    {"at": 3.0, "kind": "worker-joined", "replica": "worker-0"},
    {"at": 3.0, "kind": "worker-joined", "replica": "worker-1"},
    {"at": 5.0, "kind": "worker-lost", "replica": "worker-1", "reason": "preempted: killed by SIGKILL"},
    {"at": 6.0, "kind": "worker-lost", "replica": "worker-0", "reason": "crashed: exited with code 1"},
    {"at": 6.5, "kind": "worker-launched", "replica": "worker-2"},
    {"at": 8.0, "kind": "worker-joined", "replica": "worker-2"},
    {"at": 9.0, "kind": "worker-left", "replica": "worker-2", "reason": "done"},
]


def test_each_worker_has_a_span_with_how_it_ended() -> None:
    assert timeline.worker_lifetimes(EVENTS) == (
        WorkerLifetime("worker-0", 1.0, 3.0, 6.0, "failed", "crashed: exited with code 1"),
        WorkerLifetime("worker-1", 1.0, 3.0, 5.0, "preempted", "preempted: killed by SIGKILL"),
        WorkerLifetime("worker-2", 6.5, 8.0, 9.0, "left", "done"),
    )


def test_a_running_worker_has_no_end() -> None:
    assert timeline.worker_lifetimes(EVENTS[:3])[0] == WorkerLifetime("worker-0", 1.0, 3.0, None, "")


def test_the_timeline_covers_events_and_curves() -> None:
    story = timeline.build_timeline("digits", EVENTS, {"loss": MetricCurve((3.0, 12.0), (1.0, 0.5))}, started_at=0.5)

    assert (story.started_at, story.ended_at) == (0.5, 12.0)
    assert story.speed == MetricCurve((), ())


def test_curves_of_an_earlier_run_and_of_the_master_are_not_metrics_of_this_run() -> None:
    curves = {"accuracy": MetricCurve((1.0, 3.0), (0.5, 0.9)), "workers": MetricCurve((3.0,), (1.0,))}

    story = timeline.build_timeline("digits", [], curves, started_at=2.0)

    assert story.metrics == {"accuracy": MetricCurve((3.0,), (0.9,))}
    assert story.started_at == 2.0


def test_a_figure_is_drawn_of_any_timeline(tmp_path: Path) -> None:
    curves = {"loss": MetricCurve((3.0, 9.0), (1.0, 0.5)), "validation/accuracy": MetricCurve((5.0,), (0.9,))}
    for name, story in {
        "whole": timeline.build_timeline("digits", EVENTS, curves, started_at=0.5),
        "empty": timeline.build_timeline("digits", [], {}, started_at=0.5),
    }.items():
        timeline_figure.draw_figure(story, tmp_path / f"{name}.png")

    assert sorted(path.name for path in tmp_path.glob("*.png*")) == ["empty.png", "whole.png"]
    assert (tmp_path / "whole.png").read_bytes().startswith(b"\x89PNG")
