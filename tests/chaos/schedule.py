"""Which faults strike which job, and when: a pure function of the campaign's seed and the job's number.

Who exactly is struck (the third of the living workers, say) is told by a fraction, since only the running job knows who
lives. The same seed and number give the same faults; the moments of a run are its own.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    KILL = "kill"
    TERMINATE = "terminate"  # SIGTERM, as a preemption begins
    FREEZE = "freeze"
    SLOW = "slow"
    LOSSY = "lossy network"
    DEAF = "one-way network, in"  # what is sent to it is lost
    MUTE = "one-way network, out"  # what it sends is lost
    EMFILE = "EMFILE"
    ENOSPC = "ENOSPC"
    EIO = "EIO"
    FLIP_CHECKPOINT = "bit flip in a checkpoint"
    FLIP_JOURNAL = "bit flip in the journal"
    CLOCK = "clock jump"
    OOM = "OOM"
    SCALE = "another number of workers"
    STRANGERS = "strangers"  # at its ports: silent, slow, or talking nonsense
    RAISE = "exception in the model"
    DEADLOCK = "deadlock in the model"
    DATA = "training data away, or touched"


class Role(StrEnum):
    WORKER = "worker"
    WORKERS = "all workers"
    PS = "ps"
    MASTER = "master"
    LAUNCHER = "launcher"
    JOB = "job"  # all of it: its disk, its clock, its size
    OPERATOR = "operator"
    API_SERVER = "API server"


class Strategy(StrEnum):
    ALL_REDUCE = "all-reduce"
    HYBRID = "hybrid"
    ASYNC = "async"
    LEASES = "leases"
    PODS = "all-reduce in pods"
    HYBRID_PODS = "hybrid in pods"
    ASYNC_PODS = "async in pods"


WITH_PS = frozenset({Strategy.HYBRID, Strategy.ASYNC, Strategy.HYBRID_PODS, Strategy.ASYNC_PODS})


# How often each, of all faults; what a kind can strike.
_PROCESSES: dict[Role, float] = {Role.WORKER: 6, Role.PS: 4, Role.MASTER: 4, Role.LAUNCHER: 2}
_SPEAKERS: dict[Role, float] = {Role.WORKER: 6, Role.PS: 4, Role.MASTER: 4}
_WEIGHTS: dict[Kind, tuple[float, dict[Role, float]]] = {
    Kind.KILL: (16, {**_PROCESSES, Role.WORKERS: 0.5}),
    Kind.TERMINATE: (5, {Role.WORKER: 1}),
    Kind.FREEZE: (16, _PROCESSES),
    Kind.SLOW: (10, _PROCESSES),
    Kind.LOSSY: (9, _SPEAKERS),
    Kind.DEAF: (5, _SPEAKERS),
    Kind.MUTE: (5, _SPEAKERS),
    Kind.EMFILE: (9, _PROCESSES),
    Kind.ENOSPC: (5, {Role.JOB: 1}),
    Kind.EIO: (8, _PROCESSES),
    Kind.FLIP_CHECKPOINT: (4, {Role.JOB: 1}),
    Kind.CLOCK: (6, {**_PROCESSES, Role.JOB: 6}),
    Kind.OOM: (5, {Role.WORKER: 6, Role.PS: 2, Role.MASTER: 2}),
    Kind.SCALE: (5, {Role.JOB: 1}),
    Kind.STRANGERS: (6, _SPEAKERS),
    Kind.RAISE: (4, {Role.WORKER: 1}),
    Kind.DEADLOCK: (2, {Role.WORKER: 1}),
    Kind.DATA: (16, {Role.JOB: 1}),
}
# Of a job of pods; what is not here is made on one machine.
_POD_WEIGHTS: dict[Kind, tuple[float, dict[Role, float]]] = {
    Kind.KILL: (6, {Role.WORKER: 6, Role.PS: 5, Role.MASTER: 3, Role.OPERATOR: 3, Role.API_SERVER: 1}),
    Kind.FREEZE: (5, {Role.WORKER: 6, Role.PS: 4, Role.MASTER: 3, Role.OPERATOR: 2, Role.API_SERVER: 2}),
    Kind.TERMINATE: (3, {Role.WORKER: 3, Role.PS: 2, Role.MASTER: 1, Role.OPERATOR: 1}),
    Kind.SLOW: (3, {Role.WORKER: 3, Role.PS: 2, Role.MASTER: 3, Role.OPERATOR: 1, Role.API_SERVER: 1}),
    Kind.EMFILE: (3, {Role.WORKER: 3, Role.PS: 2, Role.MASTER: 3, Role.OPERATOR: 2}),
    Kind.SCALE: (1, {Role.JOB: 1}),
}
POD_KINDS = frozenset(_POD_WEIGHTS)
POD_FAULTS = 15
_STRATEGIES = {Strategy.ALL_REDUCE: 4, Strategy.HYBRID: 3, Strategy.ASYNC: 3, Strategy.LEASES: 1}
POD_STRATEGIES = (Strategy.PODS, Strategy.HYBRID_PODS, Strategy.ASYNC_PODS)
LEAST, MOST = 20, 40  # faults of a job
PAIRS = 0.2  # of the faults, that come at the same moment as the one before
JOURNALS = 0.05  # of the jobs, whose last fault is a flipped bit in the journal
# What only some jobs have: checkpoints that others build upon, data in a file.
_ONLY: dict[Kind, tuple[Strategy, ...]] = {
    Kind.FLIP_CHECKPOINT: (Strategy.ALL_REDUCE, Strategy.HYBRID),
    Kind.DATA: (Strategy.ALL_REDUCE,),
}


@dataclass(frozen=True, slots=True)
class Fault:
    kind: Kind
    role: Role
    after_s: float  # since the fault before; 0: together with it
    which: float  # of those with this role, by a fraction
    lasts_s: float  # where it lasts
    strength: float  # 0 to 1: how much is lost, how far the clock jumps, how many workers

    def __str__(self) -> str:
        return f"{self.kind} of {self.role}"


@dataclass(frozen=True, slots=True)
class Plan:
    """Of one job."""

    seed: int
    number: int
    strategy: Strategy
    faults: tuple[Fault, ...]


def plan(seed: int, number: int, kinds: Collection[Kind]) -> Plan:
    """The faults of job `number` of the campaign `seed`, of `kinds`: those that this machine can make."""
    # A string: Python mixes it whole, and the same on every machine.
    chance = random.Random(f"chaos {seed} {number}")
    (strategy,) = chance.choices(list(_STRATEGIES), list(_STRATEGIES.values()))
    usable = [kind for kind in _WEIGHTS if kind in kinds and strategy in _ONLY.get(kind, (strategy,))]
    faults: list[Fault] = []
    for _ in range(chance.randint(LEAST, MOST)):
        (kind,) = chance.choices(usable, [_WEIGHTS[kind][0] for kind in usable])
        roles = _roles(_WEIGHTS[kind][1], strategy)
        faults.append(_fault(chance, kind, roles, is_first=not faults, pause_s=1.5))
    if Kind.FLIP_JOURNAL in kinds and chance.random() < JOURNALS:
        faults.append(Fault(Kind.FLIP_JOURNAL, Role.MASTER, 1.0, chance.random(), 0.0, chance.random()))
    return Plan(seed, number, strategy, tuple(faults))


def pod_plan(seed: int, number: int, strategies: Sequence[Strategy] = POD_STRATEGIES) -> Plan:
    """The same for a job of pods: fewer faults, as a pod takes longer to come back than a process."""
    chance = random.Random(f"chaos of pods {seed} {number}")
    strategy = strategies[number % len(strategies)]
    faults: list[Fault] = []
    for _ in range(POD_FAULTS):
        (kind,) = chance.choices(list(_POD_WEIGHTS), [weight for weight, _ in _POD_WEIGHTS.values()])
        roles = _roles(_POD_WEIGHTS[kind][1], strategy)
        faults.append(_fault(chance, kind, roles, is_first=not faults, pause_s=8.0))
    return Plan(seed, number, strategy, tuple(faults))


def _fault(chance: random.Random, kind: Kind, roles: dict[Role, float], *, is_first: bool, pause_s: float) -> Fault:
    (role,) = chance.choices(list(roles), list(roles.values()))
    is_pair = not is_first and chance.random() < PAIRS
    after_s = 0.0 if is_pair else round(chance.uniform(pause_s / 5, pause_s), 3)
    lasts_s = round(min(chance.expovariate(1 / 1.2), 5.0) + 0.1, 3)
    return Fault(kind, role, after_s, chance.random(), lasts_s, chance.random())


def _roles(weights: dict[Role, float], strategy: Strategy) -> dict[Role, float]:
    return {role: weight for role, weight in weights.items() if role is not Role.PS or strategy in WITH_PS}
