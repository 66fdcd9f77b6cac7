"""What each of these policies must keep, whatever it is shown: random small clusters, and a decision carried out."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from elasticdl.scheduler import tiers
from elasticdl.scheduler.interface import Batch, Decision, Floats, Policy
from elasticdl.scheduler.invariants import violations
from elasticdl.scheduler.plan import Plan
from elasticdl.scheduler.snapshot import Job, Node, Snapshot

QUICK = {"pollux": "pollux:population=12,generations=6"}  # a search of seconds otherwise


@dataclass(frozen=True)
class Curve:
    """w ** power, on more than one node `far` of it, times what the kind is worth."""

    power: float = 0.8
    far: float = 0.9
    kinds: Mapping[str, float] = field(default_factory=dict)

    def at(self, workers: ArrayLike, nodes: ArrayLike, kind: str = "") -> Floats:
        count = np.asarray(workers, float)
        alone = np.where(count > 0, np.maximum(count, 1.0) ** self.power, 0.0)
        return np.where(np.asarray(nodes) > 1, self.far, 1.0) * alone * self.kinds.get(kind, 1.0)

    def batch(self, workers: int, nodes: int, kind: str = "") -> Batch | None:
        return None


def cluster(nodes: int, devices: int = 4, kind: str = "") -> tuple[Node, ...]:
    return tuple(Node(f"{kind}n{index}", devices, kind) for index in range(nodes))


def counts(plan: Plan) -> dict[str, int]:
    return {name: given.count for name, given in plan.allocations.items()}


def workers(plan: Plan) -> dict[str, dict[str, int]]:
    return {name: dict(given.workers) for name, given in plan.allocations.items()}


def carried_out(snapshot: Snapshot, plan: Plan, now: float | None = None) -> Snapshot:
    """The same jobs with what the plan gives them, at once or later; the time between counts as executed."""
    later = snapshot.now if now is None else now
    jobs = []
    for job in snapshot.jobs:
        given, had = plan.workers(job.name), later - snapshot.now
        changed = dict(given) != dict(job.workers)
        jobs.append(
            replace(
                job,
                workers=given,
                started_at=snapshot.now if given and job.started_at is None else job.started_at,
                changed_at=snapshot.now if changed else job.changed_at,
                restarts=job.restarts + (changed and job.started_at is not None),
                most_workers=max(job.most_workers, sum(given.values())),
                executed_s=job.executed_s + (had if given else 0.0),
                attained_s=job.attained_s + had * job.devices * sum(given.values()),
            )
        )
    return replace(snapshot, now=later, jobs=tuple(jobs))


def random_snapshot(seed: int) -> Snapshot:
    dice = random.Random(seed)
    kinds = dice.choice([("",), ("",), ("a", "b"), ("a", "b", "c")])
    nodes = [
        Node(
            f"n{i}", dice.choice((1, 4, 4, 4, 8)), dice.choice(kinds), f"r{i % 2}", {"memory": dice.choice((8.0, 64.0))}
        )
        for i in range(dice.randint(1, 6))
    ]
    return Snapshot(1e4, tuple(nodes), tuple(_random_job(dice, i, kinds) for i in range(dice.randint(0, 9))))


def _random_job(dice: random.Random, index: int, kinds: tuple[str, ...]) -> Job:
    least, most = dice.choice(((1, 1), (1, 4), (1, 16), (2, 8), (3, 5), (4, 4)))
    rates = dice.choice((None, Curve(dice.choice((0.5, 0.8, 0.95, 1.0)), kinds={"b": 3.0})))
    return Job(
        f"j{index}",
        submitted_at=float(dice.choice((0, 10, 5000, 9990))),
        minimum=least,
        maximum=most,
        requested=dice.choice((0, least, most)),
        sizes=dice.choice(((), (), (least, most))),
        devices=dice.choice((1, 1, 1, 2)),
        request=dice.choice(({}, {"memory": 3.0})),
        kinds=dice.choice(((), (kinds[0],))),
        rates=rates,
        work_left=dice.choice((None, 0.0, 100.0, 5e3, 1e6)),
        work_done=dice.choice((0.0, 1e3)),
        executed_s=dice.choice((0.0, 100.0, 9e3)),
        change_cost_s=dice.choice((0.0, 30.0)),
        weight=dice.choice((1.0, 5.0)),
        priority=dice.choice((0, 0, 0, 1)),
    )


def check(policy: Policy, seed: int) -> None:
    """Three rounds: every plan keeps the rules, the order of jobs does not matter, asking again changes nothing."""
    seen, memory = random_snapshot(seed), None
    for step in range(1, 4):
        decision = tiers.decide(policy, seen, memory)
        assert violations(policy, seen, decision.plan) == []
        assert workers(tiers.decide(policy, mixed(seen, seed), memory).plan) == workers(decision.plan)
        done = carried_out(seen, decision.plan)
        assert workers(_again(policy, done, decision).plan) == workers(decision.plan)
        memory = decision.memory
        seen = carried_out(seen, decision.plan, seen.now + 400.0 * step)
        seen = replace(seen, jobs=seen.jobs[: len(seen.jobs) - (step == 2)])


def _again(policy: Policy, snapshot: Snapshot, decision: Decision) -> Decision:
    return tiers.decide(policy, snapshot, decision.memory)


def mixed(snapshot: Snapshot, seed: int) -> Snapshot:
    dice, nodes, jobs = random.Random(seed), list(snapshot.nodes), list(snapshot.jobs)
    dice.shuffle(nodes)
    dice.shuffle(jobs)
    return Snapshot(snapshot.now, tuple(nodes), tuple(jobs))
