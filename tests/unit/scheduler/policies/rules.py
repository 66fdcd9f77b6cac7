"""The rules that these policies must keep on random small clusters, after decisions were carried out."""

from __future__ import annotations

import random
from dataclasses import replace

from elasticdl.scheduler import priorities
from elasticdl.scheduler.interface import Policy
from elasticdl.scheduler.invariants import find_violations
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, Snapshot
from tests.unit.scheduler.cases import Concave, applied, workers_of

QUICK = {"pollux": "pollux:population=12,generations=6"}  # a search of seconds otherwise


def cluster(nodes: int, devices: int = 4, kind: str = "") -> tuple[NodeInfo, ...]:
    return tuple(NodeInfo(f"{kind}n{index}", devices, kind) for index in range(nodes))


def random_snapshot(seed: int) -> Snapshot:
    dice = random.Random(seed)
    kinds = dice.choice([("",), ("",), ("a", "b"), ("a", "b", "c")])
    nodes = [
        NodeInfo(
            f"n{i}", dice.choice((1, 4, 4, 4, 8)), dice.choice(kinds), f"r{i % 2}", {"memory": dice.choice((8.0, 64.0))}
        )
        for i in range(dice.randint(1, 6))
    ]
    return Snapshot(1e4, tuple(nodes), tuple(_random_job(dice, i, kinds) for i in range(dice.randint(0, 9))))


def _random_job(dice: random.Random, index: int, kinds: tuple[str, ...]) -> JobInfo:
    least, max_workers = dice.choice(((1, 1), (1, 4), (1, 16), (2, 8), (3, 5), (4, 4)))
    rates = dice.choice((None, Concave(dice.choice((0.5, 0.8, 0.95, 1.0)), kinds=(("b", 3.0),))))
    return JobInfo(
        f"j{index}",
        submitted_at=float(dice.choice((0, 10, 5000, 9990))),
        min_workers=least,
        max_workers=max_workers,
        requested=dice.choice((0, least, max_workers)),
        sizes=dice.choice(((), (), (least, max_workers))),
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
        decision = priorities.decide_by_priority(policy, seen, memory)
        assert find_violations(policy, seen, decision.plan) == []
        assert workers_of(priorities.decide_by_priority(policy, mixed(seen, seed), memory)) == workers_of(decision)
        done = applied(seen, decision.plan)
        assert workers_of(priorities.decide_by_priority(policy, done, decision.memory)) == workers_of(decision)
        memory = decision.memory
        seen = applied(seen, decision.plan, 400.0 * step)
        seen = replace(seen, jobs=seen.jobs[: len(seen.jobs) - (step == 2)])


def mixed(snapshot: Snapshot, seed: int) -> Snapshot:
    dice, nodes, jobs = random.Random(seed), list(snapshot.nodes), list(snapshot.jobs)
    dice.shuffle(nodes)
    dice.shuffle(jobs)
    return Snapshot(snapshot.now, tuple(nodes), tuple(jobs))
