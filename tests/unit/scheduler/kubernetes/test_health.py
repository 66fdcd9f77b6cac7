"""The answers of the scheduler's health probes over time."""

from __future__ import annotations

import asyncio

from elasticdl.scheduler.kubernetes import manifest
from elasticdl.scheduler.kubernetes.health import LIVENESS, MAX_MISSED_INTERVALS, READINESS, SchedulerHealth
from tests.manual_clock import ManualClock


def new_health(clock: ManualClock) -> SchedulerHealth:
    return SchedulerHealth(heartbeat_timeout_s=10.0, clock=clock.now)


def beat(pulse: SchedulerHealth) -> None:
    async def once() -> None:
        task = asyncio.create_task(pulse.heartbeat.run())
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(once())


def test_it_is_alive_and_not_ready_while_it_starts() -> None:
    pulse = new_health(ManualClock())

    assert (pulse.unhealthy_reason, pulse.not_ready_reason) == ("", "it starts")


def test_one_that_waits_for_the_lease_is_ready_or_no_rollout_would_end() -> None:
    clock = ManualClock()
    pulse = new_health(clock)
    pulse.set_standby(str)
    clock.advance(1000.0)
    beat(pulse)

    assert (pulse.unhealthy_reason, pulse.not_ready_reason) == ("", "")


def test_one_that_waits_and_cannot_reach_the_lease_is_not_ready() -> None:
    pulse = new_health(ManualClock())
    pulse.set_standby(lambda: "the Lease cannot be reached")

    assert (pulse.unhealthy_reason, pulse.not_ready_reason) == ("", "the Lease cannot be reached")


def test_an_event_loop_that_hangs_is_dead() -> None:
    clock = ManualClock()
    pulse = new_health(clock)
    pulse.set_standby(str)
    clock.advance(11.0)

    assert pulse.unhealthy_reason == pulse.not_ready_reason == "the event loop has been silent for 11 s"


def test_a_turn_that_never_ends_is_dead() -> None:
    clock = ManualClock()
    pulse = new_health(clock)
    pulse.begin_turn()
    clock.advance(10.5)
    beat(pulse)

    assert pulse.unhealthy_reason.startswith("a turn is running, and the next turn is ")
    pulse.end_turn(None)
    assert pulse.unhealthy_reason == ""


def test_a_turn_may_be_some_intervals_late_and_no_more() -> None:
    clock = ManualClock()
    pulse = new_health(clock)
    pulse.end_turn(20.0)
    clock.advance(MAX_MISSED_INTERVALS * 20.0 - 1.0)
    beat(pulse)
    assert pulse.unhealthy_reason == ""

    clock.advance(2.0)
    beat(pulse)
    assert pulse.unhealthy_reason == "it leads, and the next turn is 1 s overdue"


def test_turns_that_come_with_news_only_are_never_late() -> None:
    clock = ManualClock()
    pulse = new_health(clock)
    pulse.end_turn(None)
    clock.advance(1e6)
    beat(pulse)

    assert (pulse.unhealthy_reason, pulse.not_ready_reason) == ("", "")


def test_a_turn_that_failed_makes_it_unready_and_not_dead() -> None:
    pulse = new_health(ManualClock())
    pulse.end_turn(2.0, "the API server is away")

    assert (pulse.unhealthy_reason, pulse.not_ready_reason) == ("", "the API server is away")
    pulse.end_turn(2.0)
    assert pulse.not_ready_reason == ""


def test_the_deployment_asks_where_the_scheduler_answers() -> None:
    *_, deployment = manifest.scheduler_objects("here", "image", ["--on=kubernetes"], port=9090)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]

    assert container["command"][-1] == "--port=9090"
    assert container["ports"] == [{"name": "health", "containerPort": 9090}]
    url = {name: container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert url == {
        "startupProbe": {"path": LIVENESS, "port": "health"},
        "livenessProbe": {"path": LIVENESS, "port": "health"},
        "readinessProbe": {"path": READINESS, "port": "health"},
    }
