"""Measured speeds by number of workers and nodes, to which a scheduler fits its models. Pure."""

from __future__ import annotations

import math
from statistics import fmean

from elasticdl.master.machine.actions import Action
from elasticdl.master.machine.events import SpeedMeasured
from elasticdl.master.machine.state import MasterState
from elasticdl.master.strategies.rounds import Round

_WARM_STEPS = 3  # steps of a round before its times count
_MIN_INTERVAL_S = 5.0  # between two measurements of one configuration
_MIN_CHANGE = 0.05  # smaller relative changes are not journaled
_SMOOTHING = 0.3


def update_speed(job: MasterState) -> None:
    """Compute the speed of the round from the newest heartbeats of all its members."""
    current = job.ledger.rounds.current
    if current is None or job.global_batch == 0:
        return
    heartbeats = [job.observed.heartbeats[worker] for worker in current.workers if worker in job.observed.heartbeats]
    warm = [
        heartbeat for heartbeat in heartbeats if heartbeat.round == current.id and heartbeat.timed_steps >= _WARM_STEPS
    ]
    if len(warm) < len(current.workers):
        return
    step_s, compute_s = (
        fmean(heartbeat.one_pass_step_s for heartbeat in warm),
        max(heartbeat.pass_s for heartbeat in warm),
    )
    if math.isfinite(step_s) and math.isfinite(compute_s) and step_s > 0 and compute_s > 0:
        job.observed.speed = SpeedMeasured(*_configuration(job, current), step_s, compute_s)


def _configuration(job: MasterState, current: Round) -> tuple[int, int, int]:
    hosts = {job.ledger.membership.workers[worker].host for worker in current.workers}
    max_ranks = max(member.logical_ranks for member in current.members)
    ranks = sum(member.logical_ranks for member in current.members)
    return len(hosts), len(current.workers), -(-max_ranks * job.global_batch // ranks)


def next_measurement(job: MasterState, now: float) -> SpeedMeasured | None:
    """The measured speed, if its configuration is new or has become faster or slower."""
    measured = job.observed.speed
    if measured is None:
        return None
    journaled = next((speed for speed in job.ledger.speeds if speed.configuration == measured.configuration), None)
    is_recent = now - job.observed.speed_journaled_at < _MIN_INTERVAL_S
    if journaled is not None and (is_recent or _is_unchanged(journaled, measured)):
        return None
    job.observed.speed_journaled_at = now
    return measured


def _is_unchanged(journaled: SpeedMeasured, measured: SpeedMeasured) -> bool:
    return all(
        abs(after - before) <= _MIN_CHANGE * before
        for before, after in (
            (journaled.step_s, measured.step_s),
            (journaled.compute_s, measured.compute_s),
        )
    )


def on_speed_measured(job: MasterState, event: SpeedMeasured, now: float) -> list[Action]:
    """Record a speed, smoothed with the earlier one of its configuration. The newest is the last in the list."""
    speeds = job.ledger.speeds
    journaled = next((speed for speed in speeds if speed.configuration == event.configuration), None)
    if journaled is not None:
        speeds.remove(journaled)
        step_s = journaled.step_s + _SMOOTHING * (event.step_s - journaled.step_s)
        event = event._replace(
            step_s=step_s, compute_s=journaled.compute_s + _SMOOTHING * (event.compute_s - journaled.compute_s)
        )
    speeds.append(event)
    return []
