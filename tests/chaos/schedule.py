"""Plans the faults of a job and when they are injected: a pure function of the campaign's seed and the job's number.

The target (for example the third of the living workers) is given by a fraction, since only the running job knows which
processes live. The same seed and number give the same faults; exact times differ from run to run.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    KILL = "kill"
    TERMINATE = "terminate"  # SIGTERM, like a preemption
    FREEZE = "freeze"
    SLOW = "slow"
    LOSSY = "lossy network"
    DEAF = "one-way network, in"  # drops the packets it is sent
    MUTE = "one-way network, out"  # drops the packets it sends
    EMFILE = "EMFILE"
    ENOSPC = "ENOSPC"
    EIO = "EIO"
    FLIP_CHECKPOINT = "bit flip in a checkpoint"
    FLIP_JOURNAL = "bit flip in the journal"
    CLOCK = "clock jump"
    OOM = "OOM"
    SCALE = "another number of workers"
    STRANGERS = "strangers"  # unknown clients that are silent, slow or send garbage
    RAISE = "exception in the model"
    DEADLOCK = "deadlock in the model"
    DATA = "training data away, or touched"


class Role(StrEnum):
    WORKER = "worker"
    WORKERS = "all workers"
    PS = "ps"
    MASTER = "master"
    LAUNCHER = "launcher"
    JOB = "job"  # its disk, its clock, its size
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


# The weight of each kind among all faults, and of each role among its targets.
_PROCESSES: dict[Role, float] = {Role.WORKER: 6, Role.PS: 4, Role.MASTER: 4, Role.LAUNCHER: 2}
_NETWORKED: dict[Role, float] = {Role.WORKER: 6, Role.PS: 4, Role.MASTER: 4}
_WEIGHTS: dict[Kind, tuple[float, dict[Role, float]]] = {
    Kind.KILL: (16, {**_PROCESSES, Role.WORKERS: 0.5}),
    Kind.TERMINATE: (5, {Role.WORKER: 1}),
    Kind.FREEZE: (16, _PROCESSES),
    Kind.SLOW: (10, _PROCESSES),
    Kind.LOSSY: (9, _NETWORKED),
    Kind.DEAF: (5, _NETWORKED),
    Kind.MUTE: (5, _NETWORKED),
    Kind.EMFILE: (9, _PROCESSES),
    Kind.ENOSPC: (5, {Role.JOB: 1}),
    Kind.EIO: (8, _PROCESSES),
    Kind.FLIP_CHECKPOINT: (4, {Role.JOB: 1}),
    Kind.CLOCK: (6, {**_PROCESSES, Role.JOB: 6}),
    Kind.OOM: (5, {Role.WORKER: 6, Role.PS: 2, Role.MASTER: 2}),
    Kind.SCALE: (5, {Role.JOB: 1}),
    Kind.STRANGERS: (6, _NETWORKED),
    Kind.RAISE: (4, {Role.WORKER: 1}),
    Kind.DEADLOCK: (2, {Role.WORKER: 1}),
    Kind.DATA: (16, {Role.JOB: 1}),
}
# The same for jobs of pods; other kinds are injected on one machine only.
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
MIN_FAULTS, MAX_FAULTS = 20, 40  # faults of one job
PAIR_PROBABILITY = 0.2  # that a fault comes at the same moment as the one before
JOURNAL_PROBABILITY = 0.05  # that the last fault of a job is a flipped bit in the journal
# Kinds that only some jobs can have: they need checkpoints that are resumed from, or data in a file.
_STRATEGIES_WITH: dict[Kind, tuple[Strategy, ...]] = {
    Kind.FLIP_CHECKPOINT: (Strategy.ALL_REDUCE, Strategy.HYBRID),
    Kind.DATA: (Strategy.ALL_REDUCE,),
}


@dataclass(frozen=True, slots=True)
class Fault:
    kind: Kind
    role: Role
    delay_s: float  # after the previous fault; 0: together with it
    target: float  # which of the processes with this role, as a fraction
    duration_s: float  # of faults that last
    strength: float  # 0 to 1: the share of lost packets, the jump of the clock, the number of workers

    def __str__(self) -> str:
        return f"{self.kind} of {self.role}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The faults of one job."""

    seed: int
    number: int
    strategy: Strategy
    faults: tuple[Fault, ...]


def plan_job(seed: int, number: int, kinds: Collection[Kind]) -> Plan:
    """Returns the faults of job `number` in the campaign `seed`, chosen from `kinds`."""
    # A string: Python hashes all of it, and equally on every machine.
    rng = random.Random(f"chaos {seed} {number}")
    (strategy,) = rng.choices(list(_STRATEGIES), list(_STRATEGIES.values()))
    usable = [kind for kind in _WEIGHTS if kind in kinds and strategy in _STRATEGIES_WITH.get(kind, (strategy,))]
    faults: list[Fault] = []
    for _ in range(rng.randint(MIN_FAULTS, MAX_FAULTS)):
        (kind,) = rng.choices(usable, [_WEIGHTS[kind][0] for kind in usable])
        roles = _roles(_WEIGHTS[kind][1], strategy)
        faults.append(_fault(rng, kind, roles, is_first=not faults, pause_s=1.5))
    if Kind.FLIP_JOURNAL in kinds and rng.random() < JOURNAL_PROBABILITY:
        faults.append(Fault(Kind.FLIP_JOURNAL, Role.MASTER, 1.0, rng.random(), 0.0, rng.random()))
    return Plan(seed, number, strategy, tuple(faults))


def plan_pod_job(seed: int, number: int, strategies: Sequence[Strategy] = POD_STRATEGIES) -> Plan:
    """The same for a job of pods: fewer faults, since a pod takes longer to come back than a process."""
    rng = random.Random(f"chaos of pods {seed} {number}")
    strategy = strategies[number % len(strategies)]
    faults: list[Fault] = []
    for _ in range(POD_FAULTS):
        (kind,) = rng.choices(list(_POD_WEIGHTS), [weight for weight, _ in _POD_WEIGHTS.values()])
        roles = _roles(_POD_WEIGHTS[kind][1], strategy)
        faults.append(_fault(rng, kind, roles, is_first=not faults, pause_s=8.0))
    return Plan(seed, number, strategy, tuple(faults))


def _fault(rng: random.Random, kind: Kind, roles: dict[Role, float], *, is_first: bool, pause_s: float) -> Fault:
    (role,) = rng.choices(list(roles), list(roles.values()))
    is_pair = not is_first and rng.random() < PAIR_PROBABILITY
    delay_s = 0.0 if is_pair else round(rng.uniform(pause_s / 5, pause_s), 3)
    duration_s = round(min(rng.expovariate(1 / 1.2), 5.0) + 0.1, 3)
    return Fault(kind, role, delay_s, rng.random(), duration_s, rng.random())


def _roles(weights: dict[Role, float], strategy: Strategy) -> dict[Role, float]:
    return {role: weight for role, weight in weights.items() if role is not Role.PS or strategy in WITH_PS}
