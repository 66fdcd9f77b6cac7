"""All that a policy may know: the cluster's nodes and the jobs that are not over, at one moment. Plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from elasticdl.errors import SpecError
from elasticdl.scheduler.interface import RateModel

WorkersByNode = Mapping[str, int]
"""How many workers on which node, by its name. Nodes without any do not stand in it."""


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A machine. Devices are what is scheduled: its GPUs, or its cores where jobs compute on them."""

    name: str
    devices: int
    kind: str = ""  # of its devices, e.g. "a100"
    rack: str = ""
    resources: Mapping[str, float] = field(default_factory=dict)  # what else it has, e.g. {"memory": 64e9}

    def __post_init__(self) -> None:
        if self.devices < 0:
            raise SpecError(f"node {self.name}: expected 0 devices or more, received {self.devices}")


@dataclass(frozen=True, slots=True)
class PlacementConstraint:
    """So many of a job's workers at least on this kind of device, in one rack: "4 in one rack on a, 2 on b"."""

    workers: int
    kind: str = ""  # "": any
    same_rack: bool = False


@dataclass(frozen=True, slots=True)
class SpeedSample:
    """One optimizer step as it was measured."""

    nodes: int
    workers: int
    local_batch: int  # records of one worker in one pass
    step_s: float  # of a step without accumulation: computing and waiting for the others
    compute_s: float  # of it, forward and backward alone
    kind: str = ""


@dataclass(frozen=True, slots=True)
class GradientNoise:
    """Of the gradient at the job's initial batch: |g|² and the trace of its covariance."""

    gradient_norm_sq: float
    gradient_variance: float


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A job that was submitted and is not over."""

    name: str
    submitted_at: float
    min_workers: int = 1  # workers it can run with …
    max_workers: int = 1  # … and those it can use
    requested: int = 0  # what its owner asked for, the size rigid policies know; 0: its maximum
    sizes: tuple[int, ...] = ()  # allowed numbers of workers; (): all from minimum to maximum
    priority: int = 0  # greater goes first
    queue: str = ""  # or tenant
    devices: int = 1  # of each worker
    request: Mapping[str, float] = field(default_factory=dict)  # of other resources, of each worker
    kinds: tuple[str, ...] = ()  # devices it can run on; (): all
    constraints: tuple[PlacementConstraint, ...] = ()  # how its minimum must be placed
    is_guaranteed: bool = True  # False: opportunistic, takes what nobody else uses (AntMan)
    may_share: bool = False  # its workers may share a device with those of another job
    device_use: float = 1.0  # share of a device's compute that one worker uses alone
    # What became of it so far
    workers: WorkersByNode = field(default_factory=dict)
    share: float = 1.0  # of each device, that it has now
    started_at: float | None = None  # first time it had workers
    attained_s: float = 0.0  # devices times seconds
    executed_s: float = 0.0  # with any workers at all
    changed_at: float | None = None  # when its workers changed last
    restarts: int = 0  # changes of its workers since it started
    change_cost_s: float = 0.0  # what the next change costs it, in seconds without progress
    max_workers_so_far: int = 0  # that it ever had
    # What was measured of it
    speeds: tuple[SpeedSample, ...] = ()
    noise: GradientNoise | None = None
    rates: RateModel | None = None  # useful work a second by allocation; None: nothing is known yet
    work_left: float | None = None  # in the unit of `rates`, by what it declares; None: nobody knows
    work_done: float = 0.0
    # What its owner said
    weight: float = 1.0
    utility: UtilityFunction | None = None

    def __post_init__(self) -> None:
        # One comparison for the good ones: a hundred thousand are made for a snapshot. NaN compares false.
        is_sound = 1 <= self.min_workers <= self.max_workers and 0 <= self.submitted_at < math.inf
        if not (is_sound and self.requested >= 0 and self.devices >= 1 and 0 < self.share <= 1):
            raise SpecError(f"job {self.name}: {_validation_error(self)}")

    @property
    def worker_count(self) -> int:
        return sum(self.workers.values())

    @property
    def rigid_size(self) -> int:
        """The size a rigid policy gives it."""
        return self.requested or self.max_workers

    @property
    def min_size(self) -> int:
        """The smallest allowed number of workers; 0: none is."""
        return self.min_workers if not self.sizes else next(iter(self.sizes_up_to(self.max_workers)), 0)

    @property
    def is_running(self) -> bool:
        return bool(self.workers)

    def allows_size(self, count: int) -> bool:
        return self.min_workers <= count <= self.max_workers and (not self.sizes or count in self.sizes)

    def max_size_up_to(self, limit: int) -> int:
        """The greatest allowed number of workers up to `most`; 0: none is."""
        if self.sizes:
            return max((size for size in self.sizes if size <= limit and self.allows_size(size)), default=0)
        return 0 if limit < self.min_workers else min(limit, self.max_workers)

    def sizes_up_to(self, limit: int) -> tuple[int, ...]:
        """All allowed numbers of workers up to `most`, the least first."""
        if self.sizes:
            return tuple(sorted(size for size in self.sizes if size <= limit and self.allows_size(size)))
        return tuple(range(self.min_workers, min(limit, self.max_workers) + 1))

    def can_run_on(self, node: NodeInfo) -> bool:
        return not self.kinds or node.kind in self.kinds

    def as_rigid(self) -> JobInfo:
        """As those see it who know one size only."""
        return replace(self, min_workers=self.rigid_size, max_workers=self.rigid_size, sizes=())


def _validation_error(job: JobInfo) -> str:
    if job.min_workers < 1:
        return f"expected a minimum of 1 worker or more, received {job.min_workers}"
    if job.max_workers < job.min_workers:
        return f"expected minimum <= maximum, received minimum {job.min_workers}, maximum {job.max_workers}"
    if not 0 <= job.submitted_at < math.inf:
        return f"expected the time of its submission in seconds, 0 or later, received {job.submitted_at}"
    if job.requested < 0:
        return f"expected requested workers, or 0 for its maximum, received {job.requested}"
    if job.devices < 1:
        return f"expected 1 device or more of each worker, received {job.devices}"
    return f"expected a share of its devices above 0 and up to 1, received {job.share}"


@dataclass(frozen=True, slots=True)
class UtilityFunction:
    """What it is worth to be done after so many seconds: worth / (1 + exp(urgency · (seconds − target_s)))."""

    value: float = 1.0
    urgency: float = 0.0  # a second; 0: half the worth, whenever
    target_s: float = 3600.0


@dataclass(frozen=True)
class Snapshot:
    """The cluster and its jobs at one moment. Nodes and jobs are in no particular order."""

    now: float
    nodes: tuple[NodeInfo, ...]
    jobs: tuple[JobInfo, ...]
    is_shared: bool = False  # with others, who come and go: nodes are what those leave, and may have more tomorrow

    @cached_property
    def total_devices(self) -> int:
        return sum(node.devices for node in self.nodes)

    @cached_property
    def jobs_by_name(self) -> Mapping[str, JobInfo]:
        return {job.name: job for job in self.jobs}

    @cached_property
    def nodes_by_name(self) -> Mapping[str, NodeInfo]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def max_devices_per_node(self) -> int:
        """Of the largest."""
        return max((node.devices for node in self.nodes), default=0)
