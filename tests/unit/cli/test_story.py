"""The story of a job and its picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elasticdl.cli import chart, story
from elasticdl.cli.story import Curve, Span

EVENTS: list[dict[str, Any]] = [
    {"at": 1.0, "kind": "worker-launched", "worker": "worker-0"},
    {"at": 1.0, "kind": "worker-launched", "worker": "worker-1"},
    {"at": 3.0, "kind": "worker-joined", "worker": "worker-0"},
    {"at": 3.0, "kind": "worker-joined", "worker": "worker-1"},
    {"at": 5.0, "kind": "worker-lost", "worker": "worker-1", "reason": "preempted: killed by SIGKILL"},
    {"at": 6.0, "kind": "worker-lost", "worker": "worker-0", "reason": "crashed: exited with code 1"},
    {"at": 6.5, "kind": "worker-launched", "worker": "worker-2"},
    {"at": 8.0, "kind": "worker-joined", "worker": "worker-2"},
    {"at": 9.0, "kind": "worker-left", "worker": "worker-2", "reason": "done"},
]


def test_each_worker_has_a_span_with_how_it_ended() -> None:
    assert story.spans(EVENTS) == (
        Span("worker-0", 1.0, 3.0, 6.0, "failed", "crashed: exited with code 1"),
        Span("worker-1", 1.0, 3.0, 5.0, "preempted", "preempted: killed by SIGKILL"),
        Span("worker-2", 6.5, 8.0, 9.0, "left", "done"),
    )


def test_a_worker_that_still_lives_has_no_end() -> None:
    assert story.spans(EVENTS[:3])[0] == Span("worker-0", 1.0, 3.0, None, "")


def test_the_story_spans_events_and_curves() -> None:
    told = story.tell("digits", EVENTS, {"loss": Curve((3.0, 12.0), (1.0, 0.5))}, started_at=0.5)

    assert (told.started_at, told.ended_at) == (0.5, 12.0)
    assert told.speed == Curve((), ())


def test_curves_of_an_earlier_run_and_of_the_master_are_no_metrics_of_this_one() -> None:
    curves = {"accuracy": Curve((1.0, 3.0), (0.5, 0.9)), "workers": Curve((3.0,), (1.0,))}

    told = story.tell("digits", [], curves, started_at=2.0)

    assert told.metrics == {"accuracy": Curve((3.0,), (0.9,))}
    assert told.started_at == 2.0


def test_a_picture_is_drawn_of_any_story(tmp_path: Path) -> None:
    curves = {"loss": Curve((3.0, 9.0), (1.0, 0.5)), "validation/accuracy": Curve((5.0,), (0.9,))}
    for name, told in {
        "whole": story.tell("digits", EVENTS, curves, started_at=0.5),
        "empty": story.tell("digits", [], {}, started_at=0.5),
    }.items():
        chart.draw(told, tmp_path / f"{name}.png")

    assert sorted(path.name for path in tmp_path.glob("*.png*")) == ["empty.png", "whole.png"]
    assert (tmp_path / "whole.png").read_bytes().startswith(b"\x89PNG")
