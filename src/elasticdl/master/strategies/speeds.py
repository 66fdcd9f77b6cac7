"""Speeds by numbers of workers and nodes, measured by heartbeats: a scheduler fits its models to them. Pure."""

from __future__ import annotations

import math
from statistics import fmean

from elasticdl.master.machine.actions import Action
from elasticdl.master.machine.events import SpeedMeasured
from elasticdl.master.machine.state import MasterState
from elasticdl.master.strategies.rounds import Round

_WARM_STEPS = 3  # of a round, before its times count
_MIN_INTERVAL_S = 5.0  # at most, for one configuration
_MIN_CHANGE = 0.05  # what differs by less is known already
_SMOOTHING = 0.3


def update_speed(job: MasterState) -> None:
    """A heartbeat came: what all members of the round say together."""
    current = job.ledger.rounds.current
    if current is None or job.global_batch == 0:
        return
    beats = [job.observed.heartbeats[worker] for worker in current.workers if worker in job.observed.heartbeats]
    warm = [beat for beat in beats if beat.round == current.id and beat.timed_steps >= _WARM_STEPS]
    if len(warm) < len(current.workers):
        return
    step_s, compute_s = fmean(beat.one_pass_step_s for beat in warm), max(beat.pass_s for beat in warm)
    if math.isfinite(step_s) and math.isfinite(compute_s) and step_s > 0 and compute_s > 0:
        job.observed.speed = SpeedMeasured(*_configuration(job, current), step_s, compute_s)


def _configuration(job: MasterState, current: Round) -> tuple[int, int, int]:
    hosts = {job.ledger.membership.workers[worker].host for worker in current.workers}
    most = max(seat.logical_ranks for seat in current.members)
    ranks = sum(seat.logical_ranks for seat in current.members)
    return len(hosts), len(current.workers), -(-most * job.global_batch // ranks)


def next_measurement(job: MasterState, now: float) -> SpeedMeasured | None:
    """Worth to be remembered: a new configuration, or one that has become faster or slower."""
    measured = job.observed.speed
    if measured is None:
        return None
    journaled = next((one for one in job.ledger.speeds if one.configuration == measured.configuration), None)
    is_recent = now - job.observed.speed_journaled_at < _MIN_INTERVAL_S
    if journaled is not None and (is_recent or _is_unchanged(journaled, measured)):
        return None
    job.observed.speed_journaled_at = now
    return measured


def _is_unchanged(known: SpeedMeasured, found: SpeedMeasured) -> bool:
    return all(
        abs(after - before) <= _MIN_CHANGE * before
        for before, after in ((known.step_s, found.step_s), (known.compute_s, found.compute_s))
    )


def on_speed_measured(job: MasterState, event: SpeedMeasured, now: float) -> list[Action]:
    """Smoothed with what was known of the configuration, the newest last."""
    speeds = job.ledger.speeds
    journaled = next((one for one in speeds if one.configuration == event.configuration), None)
    if journaled is not None:
        speeds.remove(journaled)
        step_s = journaled.step_s + _SMOOTHING * (event.step_s - journaled.step_s)
        event = event._replace(
            step_s=step_s, compute_s=journaled.compute_s + _SMOOTHING * (event.compute_s - journaled.compute_s)
        )
    speeds.append(event)
    return []
