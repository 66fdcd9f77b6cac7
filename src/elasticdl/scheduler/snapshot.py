"""A snapshot of the cluster: its nodes and unfinished jobs at one moment, all that a policy may know. Plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from elasticdl.errors import SpecError
from elasticdl.scheduler.interface import RateModel

WorkersByNode = Mapping[str, int]
"""Worker counts by node name, without nodes that have none."""


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A machine. Its devices are what is scheduled: GPUs, or cores if jobs compute on them."""

    name: str
    devices: int
    kind: str = ""  # of its devices, such as "a100"
    rack: str = ""
    resources: Mapping[str, float] = field(default_factory=dict)  # other resources, such as {"memory": 64e9}

    def __post_init__(self) -> None:
        if self.devices < 0:
            raise SpecError(f"node {self.name}: expected 0 devices or more, received {self.devices}")


@dataclass(frozen=True, slots=True)
class PlacementConstraint:
    """At least this many of a job's workers are on this kind of device, and in one rack if `same_rack`."""

    workers: int
    kind: str = ""  # "": any
    same_rack: bool = False


@dataclass(frozen=True, slots=True)
class SpeedSample:
    """The measured times of one optimizer step."""

    nodes: int
    workers: int
    local_batch: int  # records of one worker in one pass
    step_s: float  # step without accumulation: computing and waiting for the other workers
    compute_s: float  # forward and backward alone
    kind: str = ""


@dataclass(frozen=True, slots=True)
class GradientNoise:
    """|g|² of the gradient at the job's initial batch, and the trace of its covariance."""

    gradient_norm_sq: float
    gradient_variance: float


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A job that was submitted and has not ended."""

    name: str
    submitted_at: float
    min_workers: int = 1
    max_workers: int = 1
    requested: int = 0  # size that rigid policies use; 0: the maximum
    sizes: tuple[int, ...] = ()  # allowed worker counts; (): all from minimum to maximum
    priority: int = 0  # higher first
    queue: str = ""  # or tenant
    devices: int = 1  # per worker
    request: Mapping[str, float] = field(default_factory=dict)  # other resources per worker
    kinds: tuple[str, ...] = ()  # kinds of devices it can run on; (): all
    constraints: tuple[PlacementConstraint, ...] = ()  # how its workers must be placed
    is_guaranteed: bool = True  # False: opportunistic, uses what other jobs leave (AntMan)
    may_share: bool = False  # its workers may share a device with those of another job
    device_use: float = 1.0  # share of a device that a worker uses when alone
    # Its history
    workers: WorkersByNode = field(default_factory=dict)
    share: float = 1.0  # of each of its devices
    started_at: float | None = None  # when it first had workers
    attained_s: float = 0.0  # device-seconds
    executed_s: float = 0.0  # seconds with workers
    changed_at: float | None = None  # when its workers last changed
    restarts: int = 0  # changes of its workers since it started
    change_cost_s: float = 0.0  # seconds without progress that the next change costs
    max_workers_so_far: int = 0
    # Measurements
    speeds: tuple[SpeedSample, ...] = ()
    noise: GradientNoise | None = None
    rates: RateModel | None = None  # None: nothing is known yet
    work_left: float | None = None  # in the unit of `rates`; None: unknown
    work_done: float = 0.0
    # Set by the user
    weight: float = 1.0
    utility: UtilityFunction | None = None

    def __post_init__(self) -> None:
        # Valid jobs take one comparison, because a snapshot may have 100,000. NaN compares false.
        is_sound = 1 <= self.min_workers <= self.max_workers and 0 <= self.submitted_at < math.inf
        if not (is_sound and self.requested >= 0 and self.devices >= 1 and 0 < self.share <= 1):
            raise SpecError(f"job {self.name}: {_validation_error(self)}")

    @property
    def worker_count(self) -> int:
        return sum(self.workers.values())

    @property
    def rigid_size(self) -> int:
        """The number of workers that a rigid policy gives the job."""
        return self.requested or self.max_workers

    @property
    def min_size(self) -> int:
        """The smallest allowed number of workers; 0: there is none."""
        return self.min_workers if not self.sizes else next(iter(self.sizes_up_to(self.max_workers)), 0)

    @property
    def is_running(self) -> bool:
        return bool(self.workers)

    def allows_size(self, count: int) -> bool:
        return self.min_workers <= count <= self.max_workers and (not self.sizes or count in self.sizes)

    def max_size_up_to(self, limit: int) -> int:
        """Returns the greatest allowed number of workers up to `limit`; 0: there is none."""
        if self.sizes:
            return max((size for size in self.sizes if size <= limit and self.allows_size(size)), default=0)
        return 0 if limit < self.min_workers else min(limit, self.max_workers)

    def sizes_up_to(self, limit: int) -> tuple[int, ...]:
        """Returns all allowed numbers of workers up to `limit`, ascending."""
        if self.sizes:
            return tuple(sorted(size for size in self.sizes if size <= limit and self.allows_size(size)))
        return tuple(range(self.min_workers, min(limit, self.max_workers) + 1))

    def can_run_on(self, node: NodeInfo) -> bool:
        return not self.kinds or node.kind in self.kinds

    def as_rigid(self) -> JobInfo:
        """Returns the job with its rigid size as the only one."""
        return replace(self, min_workers=self.rigid_size, max_workers=self.rigid_size, sizes=())


def _validation_error(job: JobInfo) -> str:
    if job.min_workers < 1:
        return f"expected a minimum of 1 worker or more, received {job.min_workers}"
    if job.max_workers < job.min_workers:
        return f"expected minimum <= maximum, received minimum {job.min_workers}, maximum {job.max_workers}"
    if not 0 <= job.submitted_at < math.inf:
        return f"expected a time of submission of 0 s or later, received {job.submitted_at}"
    if job.requested < 0:
        return f"expected requested workers of 0 (the maximum) or more, received {job.requested}"
    if job.devices < 1:
        return f"expected 1 device or more per worker, received {job.devices}"
    return f"expected a share of its devices above 0 and up to 1, received {job.share}"


@dataclass(frozen=True, slots=True)
class UtilityFunction:
    """The value of a job that ends after this many seconds: value / (1 + exp(urgency · (seconds − target_s)))."""

    value: float = 1.0
    urgency: float = 0.0  # per second; 0: half the value at any time
    target_s: float = 3600.0


@dataclass(frozen=True)
class Snapshot:
    """The cluster and its jobs at one moment. Nodes and jobs are in no particular order."""

    now: float
    nodes: tuple[NodeInfo, ...]
    jobs: tuple[JobInfo, ...]
    is_shared: bool = False  # nodes are what other users of the cluster leave, which may be more later

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
        """The number of devices of the largest node."""
        return max((node.devices for node in self.nodes), default=0)
