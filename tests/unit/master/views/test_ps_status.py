"""What the status and the gauges show of ps."""

from __future__ import annotations

import pytest

from elasticdl.master.ps_fleet.ps_events import PsHeartbeatReceived
from elasticdl.master.runtime.metrics import PrometheusMetrics
from elasticdl.master.views import status
from elasticdl.master.views.status import job_status
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import PsId
from tests.unit.master.driver import Driver, job_spec, running
from tests.unit.master.ps_world import World


def serving_world() -> World:
    """Two ps, of which the first has answered 100 requests a second for some seconds."""
    world = World(Driver(job_spec(workers=1, ps=2)))
    world.serve(2)
    for number in range(1, 41):
        world.driver.now += 0.25
        world.driver.do(
            PsHeartbeatReceived(
                PsId("ps-0"), 1, 500, 4096, 25 * number, 10 * number, 3, 2, 1, 0.5, (300, 90, 10), 10 * number
            )
        )
        world.beat("ps-1")
    return world


def test_a_status_shows_each_ps() -> None:
    world = serving_world()

    message = job_status(world.driver.machine.state, world.driver.now)

    assert (message.desired_ps, message.strategy, message.ps_mode) == (2, "ParameterServerStrategy", "hybrid")
    first, second = message.ps
    assert (first.id, first.state, first.slots, first.address) == ("ps-0", "serving", 512, "ps-0:1")
    assert (first.heartbeat.rows, first.heartbeat.bytes, first.heartbeat.lock_wait_s) == (500, 4096, 0.5)
    assert first.requests_per_s == pytest.approx(100.0, rel=0.01)
    assert list(first.heartbeat.staleness) == [300, 90, 10]
    assert second.requests_per_s == 0.0


def test_a_lost_ps_is_shown_without_measurements() -> None:
    world = serving_world()
    world.kill("ps-0")

    lost = job_status(world.driver.machine.state, world.driver.now).ps[0]

    assert (lost.state, lost.heartbeat, lost.requests_per_s) == ("lost", pb.PsHeartbeat(), 0.0)
    assert "SIGKILL" in lost.reason


def test_the_rate_of_a_silent_ps_is_zero() -> None:
    world = serving_world()

    assert status.ps_statuses(world.driver.machine.state, world.driver.now + 6.0)[0].requests_per_s == 0.0


def test_gauges_show_each_present_ps_and_no_lost_one() -> None:
    world = serving_world()
    metrics = PrometheusMetrics("job")

    metrics.observe(world.driver.machine.state, world.driver.now)
    labels = {"job": "job", "ps": "ps-0"}
    assert metrics.registry.get_sample_value("elasticdl_ps_rows", labels) == 500
    assert metrics.registry.get_sample_value("elasticdl_ps_slots", labels) == 512
    assert metrics.registry.get_sample_value("elasticdl_ps_staleness", labels) == pytest.approx(110 / 400)
    assert metrics.registry.get_sample_value("elasticdl_ps", {"job": "job", "state": "serving"}) == 2
    world.kill("ps-0")
    metrics.observe(world.driver.machine.state, world.driver.now)

    assert metrics.registry.get_sample_value("elasticdl_ps_rows", labels) is None
    assert metrics.registry.get_sample_value("elasticdl_ps", {"job": "job", "state": "lost"}) == 1


def test_a_job_without_ps_has_no_gauges_of_ps() -> None:
    metrics = PrometheusMetrics("job")

    driver = running(1)
    metrics.observe(driver.machine.state, driver.now)

    assert metrics.registry.get_sample_value("elasticdl_ps", {"job": "job", "state": "serving"}) is None
    assert job_status(driver.machine.state, driver.now).ps_mode == ""
