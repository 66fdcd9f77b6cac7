"""The activity of the training thread: ages that grow only while the process runs, and harmless waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from elasticdl import watchdog
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.worker.activity import ActivityTracker


class Hands:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Hands:
    return Hands()


def pass_time(activity: ActivityTracker, clock: Hands, seconds: float, every_s: float = 0.25) -> None:
    for _ in range(round(seconds / every_s)):
        clock.now += every_s
        activity.sample()


@contextmanager
def standing_still(activity: ActivityTracker, kind: pb.Activity.ValueType) -> Iterator[None]:
    """A training thread that waits for a lock."""
    begun, done = threading.Event(), threading.Event()

    def train() -> None:
        activity.begin(kind)
        begun.set()
        done.wait()

    thread = threading.Thread(target=train)
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_a_thread_that_waits_for_a_lock_is_stalled(clock: Hands) -> None:
    activity = ActivityTracker(clock)
    with standing_still(activity, pb.COMPUTING):
        pass_time(activity, clock, 10.0)
        sample = activity.sample()
        assert (sample.activity, sample.pause_reason) == (pb.COMPUTING, "")
        assert sample.activity_s == pytest.approx(9.75)  # from the first sample on
        assert sample.blocked_s == pytest.approx(9.75, abs=1.0)


def test_a_thread_that_continues_starts_at_zero(clock: Hands) -> None:
    activity = ActivityTracker(clock)
    activity.begin(pb.COMPUTING)
    pass_time(activity, clock, 5.0)
    activity.begin(pb.EXCHANGING)
    assert activity.sample()[:3] == (pb.EXCHANGING, 0.0, 0.0)
    pass_time(activity, clock, 5.0)
    activity.advance()
    assert activity.sample().activity_s == 0.0


def test_a_thread_whose_stack_changes_is_not_stalled(clock: Hands) -> None:
    activity = ActivityTracker(clock)
    activity.begin(pb.COMPUTING)  # by this thread, which is elsewhere each time
    activity.sample()
    clock.now += 0.25
    activity.sample()
    clock.now += 0.25
    assert activity.sample().blocked_s == 0.0


def test_time_while_the_process_was_stopped_does_not_count(clock: Hands) -> None:
    activity = ActivityTracker(clock)
    with standing_still(activity, pb.COMPUTING):
        activity.sample()
        clock.now += 3600.0
        assert activity.sample().activity_s <= 1.0


def test_a_pause_is_reported_as_the_reason_and_restarts_the_time(clock: Hands) -> None:
    activity = ActivityTracker(clock)
    with standing_still(activity, pb.COMPUTING):
        pass_time(activity, clock, 50.0)
        with watchdog.pause_watchdog("evaluates"), watchdog.pause_watchdog("writes"):
            assert activity.sample()[1:] == (0.0, 0.0, "writes")
        pass_time(activity, clock, 1.0)
        assert activity.sample().activity_s <= 1.25
        assert activity.sample().pause_reason == ""


def test_waiting_for_records_is_reported_as_such(clock: Hands) -> None:
    activity = ActivityTracker(clock)
    activity.begin(pb.COMPUTING)
    with watchdog.reading_records():
        assert activity.sample().activity == pb.READING
    assert activity.sample().activity == pb.COMPUTING
    activity.begin(pb.EXCHANGING)
    with watchdog.reading_records():  # reading ahead: nobody waits for it
        assert activity.sample().activity == pb.EXCHANGING


def test_a_compiler_on_the_stack_is_a_reason_to_wait(clock: Hands) -> None:
    activity = ActivityTracker(clock)
    names: dict[str, object] = {"wait": None}
    code = compile("def compile_model(wait):\n    wait()\n", "/site/torch/_dynamo/convert_frame.py", "exec")
    exec(code, names)
    begun, done = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        done.wait()

    def train() -> None:
        activity.begin(pb.COMPUTING)
        function = names["compile_model"]
        assert callable(function)
        function(wait)

    thread = threading.Thread(target=train)
    thread.start()
    begun.wait()
    seen = []
    for _ in range(100):
        clock.now += 0.25
        seen.append(activity.sample())
    done.set()
    thread.join()
    assert "compiles the model" in [sample.pause_reason for sample in seen]
    assert max(sample.activity_s for sample in seen) <= 2.5
