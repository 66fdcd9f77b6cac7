"""The JobSpec: one training, evaluation or prediction run, resolved and frozen.

Everything a job is stands here, once. Defaults that depend on other fields are
filled in by `JobSpec` itself, so a dumped spec has no silent values left.
"""

from __future__ import annotations

import os
import re
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Positive = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]

# A job's name becomes a directory, a label and a pod name: the rules of a DNS label.
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class JobKind(StrEnum):
    TRAINING = "training"
    EVALUATION = "evaluation"
    PREDICTION = "prediction"
    SCRIPT = "script"


class ModelSpec(_Part):
    """Where the model file lies and which function of it builds the model."""

    zoo: str = "."
    definition: str  # "mnist.mnist.forward": <zoo>/mnist/mnist.py, function forward
    params: dict[str, Any] = {}


class ScriptSpec(_Part):
    """A person's own training script, for `elasticdl run`."""

    path: str
    arguments: tuple[str, ...] = ()


class DataSpec(_Part):
    """What is read. Paths go through fsspec; a directory or a glob means all its files."""

    training: str | None = None
    validation: str | None = None
    prediction: str | None = None
    format: Literal["auto", "csv", "parquet", "tfrecord", "python"] = "auto"
    columns: tuple[str, ...] = ()  # names for a CSV without a header line; or the columns to read
    reader_params: dict[str, Any] = {}  # keyword arguments of custom_data_reader
    shard_records: Positive = 1024  # the unit that is leased and shuffled


class PlanSpec(_Part):
    """The deterministic plan: which records each step trains, for any number of workers."""

    minibatch_size: Positive = 64
    global_batch_size: NotNegative = 0  # 0: minibatch_size x wished workers, filled in by JobSpec
    logical_ranks: NotNegative = 0  # 0: max workers, filled in by JobSpec
    epochs: Positive = 1
    max_steps: NotNegative = 0  # 0: no limit
    seed: NotNegative = 0
    shuffle: bool = True
    drop_last: bool = False
    reproducible: bool = True
    learning_rate: float | None = None  # passed to optimizer(parameters, lr=...)


class WorkersSpec(_Part):
    """How many workers, and what each is."""

    wish: Positive = 2
    min: NotNegative = 0  # 0: one, filled in
    max: NotNegative = 0  # 0: the wish, filled in
    threads: NotNegative = 0  # 0: cores / max workers, at least one, filled in; part of the bits
    device: Literal["cpu", "cuda", "auto"] = "cpu"
    cpu_capability: Literal["", "default", "avx2", "avx512"] = ""  # pins the instruction set; part of the bits too
    failure_budget: NotNegative = 3
    address: str = "127.0.0.1"  # the address replicas of a local job bind to


class CheckpointSpec(_Part):
    directory: str = ""  # "": <job directory>/checkpoints
    steps: NotNegative = 0  # every N steps; 0: at the end and on stop only
    keep: Positive = 3
    initial: str = ""  # a checkpoint (or a directory of them) to start from
    resume: bool = False  # go on from the newest checkpoint in `directory`


class EvaluationSpec(_Part):
    """When to evaluate during training; both zero: each epoch, if there is validation data."""

    steps: NotNegative = 0
    epochs: NotNegative = 0


class TimingSpec(_Part):
    """How the system behaves in time. Every timeout is here."""

    heartbeat_s: Seconds = 0.25
    silence_s: Seconds = 1.0  # a worker that says nothing for so long, while no step ends, is lost
    regroup_s: Seconds = 0.3  # a broken round whose members all seem alive is formed anew after this
    build_s: Seconds = 10.0  # forming a round
    grace_s: Seconds = 30.0  # a preempted or stopped worker has this long to leave
    lease_s: Seconds = 60.0  # a lease without progress for so long goes back to the queue
    lease_attempts: Positive = 3
    relaunch_s: Seconds = 1.0  # before a crashed worker is launched again; doubles each time
    rpc_s: Seconds = 10.0
    orphan_s: Seconds = 600.0  # a worker whose master has been away for so long keeps its state on disk and ends


class SecuritySpec(_Part):
    """TLS for master and workers; without it a local job stays on loopback."""

    certificate: str = ""
    key: str = ""
    authority: str = ""  # the CA that signed both sides

    @model_validator(mode="after")
    def _all_or_none(self) -> Self:
        given = [bool(self.certificate), bool(self.key), bool(self.authority)]
        if any(given) and not all(given):
            raise ValueError("certificate, key and authority belong together: give all three or none")
        return self

    @property
    def is_on(self) -> bool:
        return bool(self.certificate)


class JobSpec(_Part):
    """One job. `JobSpec(**fields)` validates and fills in every default."""

    name: str
    kind: JobKind = JobKind.TRAINING
    model: ModelSpec | None = None
    script: ScriptSpec | None = None
    data: DataSpec = DataSpec()
    plan: PlanSpec = PlanSpec()
    workers: WorkersSpec = WorkersSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    evaluation: EvaluationSpec = EvaluationSpec()
    timing: TimingSpec = TimingSpec()
    security: SecuritySpec = SecuritySpec()
    output: str = ""  # where training exports and prediction writes
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 0  # of the Prometheus metrics; 0: any free one
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"

    @field_validator("name")
    @classmethod
    def _name_is_a_label(cls, name: str) -> str:
        if not NAME.fullmatch(name):
            raise ValueError("use 1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit")
        return name

    @model_validator(mode="after")
    def _fill_in(self) -> Self:
        workers = _fill_in_workers(self.workers)
        plan = _fill_in_plan(self.plan, workers, is_script=self.kind is JobKind.SCRIPT)
        object.__setattr__(self, "workers", workers)
        object.__setattr__(self, "plan", plan)
        if self.kind is JobKind.SCRIPT:
            if self.script is None:
                raise ValueError("script: a script job needs the path of a script")
        elif self.model is None:
            raise ValueError(f"model: a {self.kind} job needs model.definition (--model_def)")
        return self


def _fill_in_workers(workers: WorkersSpec) -> WorkersSpec:
    low = workers.min or 1
    high = workers.max or max(workers.wish, low)
    if low > high:
        raise ValueError(f"workers: min {low} is above max {high}; write them as min <= max")
    if not low <= workers.wish <= high:
        raise ValueError(f"workers: wish {workers.wish} is outside min {low} .. max {high}")
    threads = workers.threads or max(1, (os.cpu_count() or 1) // high)
    return workers.model_copy(update={"min": low, "max": high, "threads": threads})


def _fill_in_plan(plan: PlanSpec, workers: WorkersSpec, *, is_script: bool) -> PlanSpec:
    ranks = plan.logical_ranks or workers.max
    batch = plan.global_batch_size or plan.minibatch_size * workers.wish
    if ranks < workers.max:
        raise ValueError(
            f"plan.logical_ranks: {ranks} is below the {workers.max} workers the job may have; "
            f"every worker needs one. Use --logical_ranks={workers.max} or fewer workers"
        )
    if batch < ranks and not is_script:  # a script says its batch itself, when it joins
        raise ValueError(
            f"plan.global_batch_size: {batch} is smaller than the {ranks} logical ranks that share it; "
            f"use at least --global_batch_size={ranks}, or fewer logical ranks"
        )
    return plan.model_copy(update={"logical_ranks": ranks, "global_batch_size": batch})
