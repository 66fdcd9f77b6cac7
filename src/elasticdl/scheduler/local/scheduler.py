"""Decides when the policy is asked and which actions follow, without files or threads."""

from __future__ import annotations

import math
from collections.abc import Iterable

from elasticdl.scheduler.accounts.events import JobAction, JobEvent
from elasticdl.scheduler.accounts.report import SchedulerReport
from elasticdl.scheduler.accounts.table import JobTable
from elasticdl.scheduler.interface import Policy
from elasticdl.scheduler.loop import SchedulingLoop

POLICY_RETRY_S = 5.0  # a policy that failed is asked again after this time


class LocalScheduler:
    """Runs one policy on a job table, with the loop that the simulator uses too."""

    def __init__(self, policy: Policy, job_table: JobTable, interval_s: float | None = None) -> None:
        """`interval_s` overrides the policy's own; 0: decide on events only."""
        self.job_table = job_table
        self.loop = SchedulingLoop(policy, job_table)
        self._interval_s = policy.interval_s if interval_s is None else interval_s
        self._decides_on_events = policy.decides_on_events or not self._interval_s
        self._next_tick_at: float | None = None  # of the next turn that needs no event

    def step(self, events: Iterable[JobEvent], now: float) -> list[JobAction]:
        """Records events, decides if that is due, and returns the actions that follow."""
        has_news = any([self.job_table.handle(event, now) for event in events])
        is_tick = now >= self._next_tick_at if self._next_tick_at is not None else self._is_on_tick(now)
        if is_tick or self._next_tick_at is None:
            self._next_tick_at = self._tick_after(now)
        if self.job_table.entries and (is_tick or (has_news and self._decides_on_events)):
            self.loop.run_once(now)
            if self.loop.policy_error:
                self._next_tick_at = min(self._next_tick_at, now + POLICY_RETRY_S)
        return self.job_table.due_actions(now)

    def _is_on_tick(self, now: float) -> bool:
        return bool(self._interval_s) and now % self._interval_s == 0.0

    def _tick_after(self, now: float) -> float:
        """Ticks are whole multiples of the interval, as in the simulator."""
        return (math.floor(now / self._interval_s) + 1) * self._interval_s if self._interval_s else math.inf

    def report(self, now: float) -> SchedulerReport:
        nodes = {node.name: node.devices for node in self.job_table.nodes}
        return SchedulerReport(
            now, self.loop.policy.name, nodes, self.loop.policy_error, self.job_table.job_statuses(now)
        )
