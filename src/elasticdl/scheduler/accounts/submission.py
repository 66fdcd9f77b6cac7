"""A job as it was submitted to the scheduler: plain data that does not change until the job is over."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from elasticdl.spec import JobSpec
from elasticdl.spec.plan import LrScaling

if TYPE_CHECKING:
    from elasticdl.scheduler.snapshot import JobInfo

_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "Mapping[str, Any]": (dict,),
    "Mapping[str, str]": (dict,),
}


@dataclass(frozen=True, slots=True)
class JobSubmission:
    """A submitted job, as it is stored in the queue."""

    name: str
    submitted_at: float
    min_workers: int
    max_workers: int
    requested: int
    devices: int = 1  # per worker
    priority: int = 0  # higher first
    queue: str = ""  # or tenant
    spec: Mapping[str, Any] = field(default_factory=dict, repr=False)  # the JobSpec, as a document
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)  # of the process that submitted it

    @classmethod
    def from_spec(
        cls, spec: JobSpec, now: float, environ: Mapping[str, str], *, priority: int, queue: str
    ) -> JobSubmission:
        workers = spec.workers
        return cls(
            name=spec.name,
            submitted_at=now,
            min_workers=workers.min,
            max_workers=workers.max,
            requested=workers.replicas,
            devices=workers.threads,
            priority=priority,
            queue=queue,
            spec=spec.model_dump(mode="json"),
            environ=dict(environ),
        )

    @property
    def logical_ranks(self) -> int:
        return int(self._plan.get("logical_ranks") or 0)

    @property
    def is_adaptive(self) -> bool:
        """Whether the policy may choose the batch: the user permits it, and planned no changes of their own."""
        rule = self._plan.get("lr_scaling", LrScaling.NONE)
        return rule != LrScaling.NONE and not self._plan.get("batch_schedule")

    @property
    def _plan(self) -> Mapping[str, Any]:
        return self.spec.get("plan") or {}

    @classmethod
    def from_document(cls, document: Any) -> JobSubmission:
        """ValueError for what is no submission."""
        if not isinstance(document, dict):
            raise ValueError(f"expected a submission, received {type(document).__name__}")
        try:
            submission = cls(**document)
        except TypeError as exc:
            raise ValueError(f"not a submission: {exc}") from None
        for column in dataclasses.fields(cls):
            if not isinstance(value := getattr(submission, column.name), _TYPES[str(column.type)]):
                raise ValueError(f"{column.name}: expected {column.type}, received {value!r}")
        return submission

    def to_document(self) -> dict[str, Any]:
        return asdict(self)

    def to_launch_spec(self, workers: int, *, resumes: bool) -> JobSpec:
        """Returns the job's spec with this many workers; its data plan does not depend on them."""
        spec = JobSpec.model_validate(dict(self.spec))
        checkpoint = spec.checkpoint.model_copy(update={"resume": True}) if resumes else spec.checkpoint
        limits = spec.workers.model_copy(update={"replicas": workers})
        return spec.model_copy(update={"workers": limits, "checkpoint": checkpoint})

    def to_job_info(self, **progress: Any) -> JobInfo:
        """Returns the job as a policy sees it, with `progress` as further fields."""
        from elasticdl.scheduler.snapshot import JobInfo

        return JobInfo(
            self.name,
            self.submitted_at,
            min_workers=self.min_workers,
            max_workers=self.max_workers,
            requested=self.requested,
            priority=self.priority,
            queue=self.queue,
            devices=self.devices,
            **progress,
        )
