"""The scheduling loop (snapshot, decide, check, act), the same on one machine, on Kubernetes and in the simulator."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from elasticdl.scheduler import priorities
from elasticdl.scheduler.interface import Cluster, Policy
from elasticdl.scheduler.invariants import find_violations
from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.plan import Allocation, AllocationPlan
from elasticdl.scheduler.snapshot import Snapshot

_log = logging.getLogger(__name__)


class SchedulingLoop:
    """Runs one policy on one cluster. If the policy raises or breaks a rule, the current plan stays."""

    def __init__(self, policy: Policy, cluster: Cluster, timer: Callable[[], float] = time.perf_counter) -> None:
        self.policy = policy
        self.plan = AllocationPlan()
        self.policy_error = ""  # why the policy's last plan was rejected; "": it was not
        self.decisions = 0
        self.rejected_plans = 0
        self.policy_s = 0.0  # seconds spent in the policy
        self.max_policy_s = 0.0
        self._cluster = cluster
        self._memory: Any = None
        self._timer = timer

    def run_once(self, now: float) -> AllocationPlan:
        snapshot = self._cluster.snapshot(now)
        before, began = self.policy_error, self._timer()
        failure: Exception | None = None
        try:
            decision = priorities.decide_by_priority(self.policy, snapshot, self._memory)
            self.policy_error = "; ".join(find_violations(self.policy, snapshot, decision.plan))
        except Exception as exc:  # policies are user code: jobs go on whatever one raises
            self.policy_error, failure = f"{type(exc).__name__}: {exc}", exc
        self._record_duration(self._timer() - began)
        if self.policy_error:
            self.rejected_plans += 1
            if self.policy_error != before:  # logged once, however often it happens
                _log.error("policy %s: %s; the last plan stays", self.policy.name, self.policy_error, exc_info=failure)
            self.plan = keep_current_plan(snapshot, self.policy_error)
        else:
            self.plan, self._memory = decision.plan, decision.memory
        self._cluster.apply(self.plan, now)
        return self.plan

    def _record_duration(self, seconds: float) -> None:
        self.decisions += 1
        self.policy_s += seconds
        self.max_policy_s = max(self.max_policy_s, seconds)


def keep_current_plan(snapshot: Snapshot, error: str) -> AllocationPlan:
    """Returns the current workers of each job, as far as their nodes still exist; no job gets more."""
    free = FreeResources(snapshot.nodes)
    allocations = {}
    for job in sorted(snapshot.jobs, key=lambda job: (-job.priority, job.submitted_at, job.name)):
        workers = {name: count for name, count in job.workers.items() if name in free.nodes}
        if not free.can_hold(job, workers, job.share) or not (not workers or job.allows_size(sum(workers.values()))):
            workers = {}
        free.allocate(job, workers, job.share)
        reason = f"unchanged: the policy failed ({error})"
        allocations[job.name] = Allocation(workers, reason, job.share if workers else 1.0)
    return AllocationPlan(allocations)
