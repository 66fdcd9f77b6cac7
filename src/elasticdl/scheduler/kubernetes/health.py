"""Answers the scheduler's liveness and readiness probes, /healthz and /readyz."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from elasticdl.kube.probes import HttpResponse, LoopHeartbeat

PORT = 8080
LIVENESS, READINESS = "/healthz", "/readyz"

SILENCE_TIMEOUT_S = 120.0  # for a turn, which may write to many jobs, and for the event loop that renews the Lease
MAX_MISSED_INTERVALS = 3  # by which a turn may be late


class SchedulerHealth:
    """The scheduler's last report about itself, read by other threads.

    What has not been reported for too long is the reason given by the probe.
    """

    def __init__(
        self, *, heartbeat_timeout_s: float = SILENCE_TIMEOUT_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._silence_s = heartbeat_timeout_s
        self._clock = clock
        self.heartbeat = LoopHeartbeat(heartbeat_timeout_s, clock)
        self._next_report_due_at = math.inf  # when the next report is overdue
        self._activity = "it starts"
        self._not_ready_reason: Callable[[], str] = lambda: "it starts"

    def set_standby(self, reason: Callable[[], str]) -> None:
        """There are no turns, because another scheduler leads or none yet. `reason` says why the leader is unknown."""
        self._next_report_due_at, self._activity, self._not_ready_reason = math.inf, "it waits for the Lease", reason

    def begin_turn(self) -> None:
        self._next_report_due_at, self._activity = self._clock() + self._silence_s, "a turn is running"

    def end_turn(self, next_s: float | None, reason: str = "") -> None:
        """The next turn comes within `next_s`, earlier if something happens; None: only if something happens."""
        late_s = math.inf if next_s is None else max(MAX_MISSED_INTERVALS * next_s, self._silence_s)
        self._next_report_due_at, self._activity, self._not_ready_reason = (
            self._clock() + late_s,
            "it leads",
            lambda: reason,
        )

    @property
    def unhealthy_reason(self) -> str:
        """Why the scheduler should be restarted; "": it is alive."""
        now = self._clock()
        late = (
            f"{self._activity}, and the next turn is {now - self._next_report_due_at:.0f} s overdue"
            if now > self._next_report_due_at
            else ""
        )
        return self.heartbeat.silence_reason or late

    @property
    def not_ready_reason(self) -> str:
        """Why the scheduler cannot decide; "": it can, or another one leads."""
        return self._not_ready_reason() or self.unhealthy_reason

    def answer_probe(self, path: str) -> HttpResponse:
        if path == LIVENESS:
            return HttpResponse.from_problem(self.unhealthy_reason)
        if path == READINESS:
            return HttpResponse.from_problem(self.not_ready_reason, self._activity)
        return HttpResponse(404, f"there are {LIVENESS} and {READINESS}\n".encode())
