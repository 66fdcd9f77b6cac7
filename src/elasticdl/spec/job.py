"""The JobSpec: one training, evaluation or prediction run, resolved and frozen.

Everything a job is stands here, once. Defaults that depend on other fields are
filled in by `JobSpec` itself, so a dumped spec has no silent values left.
"""

from __future__ import annotations

import ipaddress
import os
import re
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from elasticdl.spec.cluster import MAX_NAME_LENGTH, ClusterSpec, parse_quantity
from elasticdl.spec.data import DataSpec, PredictionSpec
from elasticdl.spec.fields import NotNegative, Positive, Seconds, SecondsOrOff, SpecModel, parse_size
from elasticdl.spec.plan import ComputePrecision, LrScaling, PlanSpec, fill_in_plan
from elasticdl.storage.schemes import find_address_problem, has_password, is_store_address, strip_file_scheme

# A job's name becomes a directory, a label and a pod name: the rules of a DNS label.
NAME_PATTERN = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
MAX_LOSS_POINTS = 5000  # of the loss curve, where the user says nothing


class JobKind(StrEnum):
    TRAINING = "training"
    EVALUATION = "evaluation"
    PREDICTION = "prediction"
    SCRIPT = "script"


class ModelSpec(SpecModel):
    """Where the model file lies and which function of it builds the model."""

    zoo: str = "."
    definition: str  # "mnist.mnist.forward": <zoo>/mnist/mnist.py, function forward
    params: dict[str, Any] = {}


class ScriptSpec(SpecModel):
    """The user's own training script, for `elasticdl run`."""

    path: str
    arguments: tuple[str, ...] = ()
    compat: Literal["ddp"] | None = None  # ddp: an unmodified torchrun script, restarted when the workers change


class StartMethod(StrEnum):
    """How the launcher of a local job starts workers and ps."""

    FORK = "fork"  # from a process that has imported torch
    SPAWN = "spawn"  # in a new interpreter


class WorkersSpec(SpecModel):
    """How many workers, and what each is."""

    replicas: Positive = 2
    min: NotNegative = 0  # 0: one, filled in
    max: NotNegative = 0  # 0: replicas, filled in
    threads: NotNegative = 0  # 0: cores / max workers, at least one, filled in; part of the bits
    device: Literal["cpu", "cuda", "auto"] = "cpu"
    cpu_capability: Literal["", "default", "avx2", "avx512"] = ""  # pins the instruction set; part of the bits too
    failure_budget: NotNegative = 3
    address: str = "127.0.0.1"  # the address replicas of a local job bind to
    start_method: StartMethod | None = None  # None: fork, on one machine


def is_loopback(address: str) -> bool:
    """Whether only processes of this machine reach it. A name other than localhost may mean anything."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


class Strategy(StrEnum):
    """Where the model lives, in the words of the original."""

    ALLREDUCE = "AllreduceStrategy"  # in every worker
    PS = "ParameterServerStrategy"  # embedding tables, and in most modes all of it, on ps


class PsMode(StrEnum):
    """How workers of a job with ps keep in step."""

    HYBRID = "hybrid"  # embeddings on ps as they come, dense layers by the elastic all-reduce
    ASYNC = "async"  # all on ps, every push applied as it comes
    SYNC = "sync"  # all on ps, the mean of `grads_to_wait` pushes applied at once
    LOCAL = "local"  # all on ps, dense variables pulled every `pull_every` steps only


class PsSpec(SpecModel):
    """Parameter servers: how many, and how workers train with them."""

    replicas: int | None = None  # None: one with the PS strategy, else none; filled in
    mode: PsMode = PsMode.HYBRID
    backups: Annotated[int, Field(ge=0, le=1)] = 0  # of each slot, on another ps
    memory_limit: str = ""  # of each ps, e.g. 4Gi or 500M; "": none
    threads: Positive = 2  # of each ps
    max_staleness: NotNegative = 0  # a push computed with values older than so many updates is refused; 0: never
    scale_lr_by_staleness: bool = False  # divide the learning rate of a push by its staleness
    grads_to_wait: Positive = 1  # sync: pushes that make one update
    pull_every: Positive = 1  # local: steps between two pulls of the dense variables
    pipeline_depth: NotNegative = 2  # batches whose pulls and pushes may be under way beside the one that computes
    wire_dtype: Literal["float32", "float16", "bfloat16"] = "float32"  # of rows and gradients on the wire
    embeddings: Literal["auto", "all", "none"] = "auto"  # which plain embedding layers move to the ps
    embedding_bytes: NotNegative = 2 << 20  # auto: those of at least so many bytes

    @field_validator("memory_limit")
    @classmethod
    def _limit_is_a_size(cls, limit: str) -> str:
        parse_size(limit)
        return limit

    @property
    def memory_bytes(self) -> int:
        """0: no limit."""
        return parse_size(self.memory_limit)


def _check_address(address: str) -> str:
    """The address without `file://`; ValueError where it is neither a path nor in a store that is known."""
    if not has_password(address) and (problem := find_address_problem(address)):
        raise ValueError(problem.partition("; received")[0])  # a complaint of a value repeats it
    return strip_file_scheme(address)


class CheckpointSpec(SpecModel):
    directory: str = ""  # "": <job directory>/checkpoints
    every_steps: NotNegative = 0  # 0: at the end and on stop only
    keep_last: Positive = 3
    init_from: str = ""  # a checkpoint (or a directory of them) to start from
    resume: bool = False  # go on from the newest checkpoint in `directory`
    retry_s: Seconds = 60.0  # for so long the last checkpoint of a job is tried again where it cannot be written

    @field_validator("directory", "init_from")
    @classmethod
    def _is_an_address(cls, address: str) -> str:
        return _check_address(address)


class EvaluationSpec(SpecModel):
    """When to evaluate during training; both zero: each epoch, if there is validation data."""

    every_steps: NotNegative = 0
    every_epochs: NotNegative = 0
    wait: bool = False  # training goes on when the result is there: callbacks then act at the same step in every run


class ObservabilitySpec(SpecModel):
    """How much is written down of how the training goes."""

    log_steps: NotNegative = (
        0  # a point of the loss curve every N steps; 0: every step, or so few that MAX_LOSS_POINTS do
    )

    def loss_interval(self, total_steps: int) -> int:
        """The steps from one point of the loss curve to the next, in a job of so many steps."""
        return self.log_steps or max(1, -(-total_steps // MAX_LOSS_POINTS))


class TimingSpec(SpecModel):
    """How the system behaves in time. Every timeout is here."""

    heartbeat_interval_s: Seconds = 0.25
    heartbeat_timeout_s: Seconds = 1.0  # a worker that says nothing for so long, while no step ends, is lost
    regroup_s: Seconds = 0.3  # a broken round whose members all seem alive is formed anew after this
    start_timeout_s: Seconds = 1.0  # a job whose first workers are ready waits so long for the rest; later ones join it
    round_timeout_s: Seconds = 10.0  # forming a round
    state_transfer_timeout_s: Seconds = 30.0  # a hand-over of the state in which nothing moves for so long is given up
    grace_period_s: Seconds = 30.0  # a preempted or stopped worker has this long to leave
    lease_s: Seconds = 60.0  # a lease without progress for so long goes back to the queue
    lease_attempts: Positive = 3
    relaunch_backoff_s: Seconds = 1.0  # before a crashed worker is launched again; doubles each time
    rpc_timeout_s: Seconds = 10.0
    ps_timeout_s: Seconds = (
        30.0  # a ps that answers nothing for so long, while nobody says it is gone, fails the worker
    )
    store_retry_s: Seconds = 60.0  # for so long an object store that does not answer is tried again
    # A worker that stands still between two exchanges for so long, and for so many usual steps, is replaced; one that
    # moves but comes to no step has several times as long.
    stall_timeout_s: SecondsOrOff = 300.0  # 0: never
    stall_steps: Positive = 20
    master_stall_timeout_s: SecondsOrOff = (
        60.0  # a master or launcher whose loop stands still for so long is replaced; 0: never
    )
    orphan_timeout_s: Seconds = (
        600.0  # a worker whose master has been away for so long keeps its state on disk and ends
    )

    @property
    def backup_timeout_s(self) -> float:
        """A ps that answers another nothing for so long is given up there: before workers give up the one that waits.

        A worker may have to wait twice: for slots that are being handed over, then for a copy.
        """
        return self.ps_timeout_s / 3


class SecuritySpec(SpecModel):
    """TLS for all replicas; without it a local job stays on loopback."""

    tls: bool = False  # with an authority of the job's own, which issues a certificate to each replica
    certificate_lifetime_s: Seconds = 86400.0  # of such a certificate; it is replaced when half of that has passed
    certificate: str = ""  # instead of all that: the user's own, the same for all replicas
    key: str = ""
    ca: str = ""  # the CA that signed both sides
    insecure: bool = False  # let others than this machine reach the job without TLS
    plain_nccl: bool = False  # let NCCL, which cannot encrypt, carry gradients between machines in a job with TLS

    @model_validator(mode="after")
    def _all_or_none(self) -> Self:
        files = [bool(self.certificate), bool(self.key), bool(self.ca)]
        if any(files) and not all(files):
            raise ValueError("certificate, key and ca belong together: give all three or none")
        if self.tls and any(files):
            raise ValueError("tls makes certificates for the job: give that, or certificate, key and ca")
        if self.insecure and self.is_on:
            raise ValueError("insecure means without TLS, and there is TLS: leave out one of them")
        return self

    @property
    def is_on(self) -> bool:
        return self.tls or bool(self.certificate)


class JobSpec(SpecModel):
    """One job. `JobSpec(**fields)` validates and fills in every default."""

    name: str
    kind: JobKind = JobKind.TRAINING
    model: ModelSpec | None = None
    script: ScriptSpec | None = None
    data: DataSpec = DataSpec()
    plan: PlanSpec = PlanSpec()
    workers: WorkersSpec = WorkersSpec()
    strategy: Strategy | None = None  # None: the PS strategy where there are ps, else all-reduce; filled in
    ps: PsSpec = PsSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    evaluation: EvaluationSpec = EvaluationSpec()
    prediction: PredictionSpec = PredictionSpec()
    observability: ObservabilitySpec = ObservabilitySpec()
    timing: TimingSpec = TimingSpec()
    security: SecuritySpec = SecuritySpec()
    cluster: ClusterSpec | None = None  # None: processes of this machine
    output: str = ""  # where training exports and prediction writes
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 0  # of the Prometheus metrics; 0: any free one
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"

    @property
    def trains_by_leases(self) -> bool:
        """All of the model is on ps: workers take shards and need not know each other."""
        has_ps = self.kind is JobKind.TRAINING and self.strategy is Strategy.PS
        return has_ps and self.ps.mode is not PsMode.HYBRID

    @property
    def restarts_script(self) -> bool:
        """Whether the script knows nothing of ElasticDL: each round starts it again, as torchrun does."""
        return self.script is not None and self.script.compat is not None

    @property
    def has_durable_checkpoints(self) -> bool:
        return self.is_durable(self.checkpoint.directory)

    def is_durable(self, path: str) -> bool:
        """Whether what is written there is seen by all and outlives the process: in pods, only on a volume."""
        if self.cluster is None or is_store_address(path):
            return True
        mounts = [volume.mount_path for volume in self.cluster.volumes if not volume.read_only]
        # Images begin in the root; in one that does not, a relative path on a volume is its maker's business.
        return any(PurePosixPath("/", path).is_relative_to(mount) for mount in mounts)

    @field_validator("output")
    @classmethod
    def _output_is_a_place(cls, address: str) -> str:
        return _check_address(address)

    @field_validator("name")
    @classmethod
    def _name_is_a_label(cls, name: str) -> str:
        if not NAME_PATTERN.fullmatch(name):
            raise ValueError("use 1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit")
        return name

    @model_validator(mode="after")
    def _no_place_holds_a_password(self) -> Self:
        # Of the whole job, not of one value: a complaint of a value repeats it.
        places = {
            "output": self.output,
            "checkpoint.directory": self.checkpoint.directory,
            "checkpoint.init_from": self.checkpoint.init_from,
        }
        for name, address in places.items():
            if has_password(address):
                raise ValueError(f"{name}: {find_address_problem(address)}")
        return self

    @model_validator(mode="after")
    def _no_open_port_without_tls(self) -> Self:
        address, security = self.workers.address, self.security
        if self.cluster is None and address in ("0.0.0.0", "::"):
            raise ValueError(
                f"workers.address (--address): {address} is no address that workers can connect to; "
                "name one of this machine, such as `hostname -I` prints"
            )
        if self.cluster is None and not is_loopback(address) and not security.is_on and not security.insecure:
            raise ValueError(
                f"workers.address (--address): {address} is reached from other machines, and without TLS everything "
                "travels in plain, the job's token too; add --tls, or --insecure if you trust everybody on this network"
            )
        has_tls = security.is_on or (self.cluster is not None and self.cluster.tls)
        if security.plain_nccl and not has_tls:
            raise ValueError("plain_nccl is an exception from TLS, and there is none: leave it out, or add TLS")
        return self

    @model_validator(mode="after")
    def _fill_in(self) -> Self:
        workers = _fill_in_workers(self.workers, self.cluster)
        if self.cluster and workers.start_method is not None:
            raise ValueError(
                f"workers.start_method: {workers.start_method} is for jobs on one machine; a pod starts its own "
                "interpreter: leave out --start_method"
            )
        if self.cluster and len(self.name) > MAX_NAME_LENGTH:
            raise ValueError(f"name: labels are made of it: use at most {MAX_NAME_LENGTH} letters on Kubernetes")
        plan = fill_in_plan(self.plan, workers.replicas, workers.max, is_script=self.kind is JobKind.SCRIPT)
        object.__setattr__(self, "workers", workers)
        object.__setattr__(self, "plan", plan)
        strategy, ps = _fill_in_ps(self.strategy, self.ps)
        object.__setattr__(self, "strategy", strategy)
        object.__setattr__(self, "ps", ps)
        if plan.lr_scaling is not LrScaling.NONE and strategy is Strategy.PS:
            raise ValueError(
                f"plan.lr_scaling: {plan.lr_scaling} with {strategy}, where every batch is pushed as it comes; "
                "leave out --adaptive_batch, or use --distribution_strategy=AllreduceStrategy"
            )
        _check_precision(self)
        if self.kind is JobKind.SCRIPT:
            if self.script is None:
                raise ValueError("script: a script job needs the path of a script")
            _check_compat(self)
        elif self.model is None:
            raise ValueError(f"model: a {self.kind} job needs model.definition (--model_def)")
        return self


def _check_precision(spec: JobSpec) -> None:
    """Refuse precisions and micro-batches that would be ignored, or train something else."""
    plan, precision = spec.plan, spec.plan.precision
    if spec.kind is JobKind.SCRIPT:
        if precision is not ComputePrecision.FP32:
            raise ValueError(f"plan.precision: {precision}: a script decides it, with torch.autocast; leave it out")
        if plan.micro_batch_size:
            raise ValueError(
                f"plan.micro_batch_size: {plan.micro_batch_size}: a script decides it, with "
                "step.backward(loss, records=n); leave it out"
            )
    if spec.kind is not JobKind.TRAINING:
        return  # others compute in float32 and make no updates, whatever the plan of the training was
    if precision is ComputePrecision.FP16 and (plan.lr_scaling is LrScaling.ADASCALE or _needs_noise(plan)):
        raise ValueError(
            f"plan.precision: fp16 with plan.lr_scaling {plan.lr_scaling}: the noise of scaled gradients is not "
            "measured, and nothing else says how large the batch should be; use --precision=bf16, or "
            "--adaptive_batch=sqrt or linear with a --batch_schedule"
        )
    if spec.strategy is Strategy.PS:
        _check_precision_with_ps(spec)


def _needs_noise(plan: PlanSpec) -> bool:
    return plan.lr_scaling is not LrScaling.NONE and not plan.batch_schedule


def _check_precision_with_ps(spec: JobSpec) -> None:
    precision, mode = spec.plan.precision, spec.ps.mode
    if precision is not ComputePrecision.FP32 and spec.trains_by_leases:
        raise ValueError(
            f"plan.precision: {precision} with ps.mode {mode}, which computes in float32: leave out --precision, or "
            "use --precision=bf16 with --ps_mode=hybrid or --distribution_strategy=AllreduceStrategy"
        )
    if precision is ComputePrecision.FP16:
        raise ValueError(
            f"plan.precision: fp16 with {spec.strategy}: ps apply the gradients of rows as they come, which would be "
            "scaled ones; use --precision=bf16, or --distribution_strategy=AllreduceStrategy"
        )
    if spec.plan.micro_batch_size:
        instead = (
            "a smaller --minibatch_size" if spec.trains_by_leases else "more --logical_ranks, each a smaller slice"
        )
        raise ValueError(
            f"plan.micro_batch_size: {spec.plan.micro_batch_size} with {spec.strategy}: rows are pushed once for a "
            f"batch; use {instead}"
        )


def _check_compat(spec: JobSpec) -> None:
    """Refuse what an unmodified script would never hear of."""
    if not spec.restarts_script:
        return
    unheard = {
        "plan.lr_scaling": spec.plan.lr_scaling is not LrScaling.NONE,
        "checkpoint.every_steps": bool(spec.checkpoint.every_steps),
        "checkpoint.init_from": bool(spec.checkpoint.init_from),
        "ps.replicas": bool(spec.ps.replicas),
    }
    for field in [field for field, is_given in unheard.items() if is_given]:
        raise ValueError(f"{field}: not for script.compat={spec.script and spec.script.compat}; leave it out")


def _fill_in_ps(strategy: Strategy | None, ps: PsSpec) -> tuple[Strategy, PsSpec]:
    strategy = strategy or (Strategy.PS if ps.replicas else Strategy.ALLREDUCE)
    replicas = ps.replicas if ps.replicas is not None else int(strategy is Strategy.PS)
    if strategy is Strategy.PS and replicas < 1:
        raise ValueError(
            f"ps.replicas: {replicas} with ParameterServerStrategy; it needs at least one ps: use --num_ps_pods=1 or "
            "more, or --distribution_strategy=AllreduceStrategy"
        )
    if strategy is Strategy.ALLREDUCE and replicas:
        raise ValueError(
            f"ps.replicas: {replicas} with AllreduceStrategy, which has no ps: leave out --num_ps_pods, "
            "or use --distribution_strategy=ParameterServerStrategy"
        )
    if ps.backups and replicas == 1:
        raise ValueError("ps.backups: a backup of each slot needs a second ps; use --num_ps_pods=2 or more")
    if ps.grads_to_wait > 1 and ps.mode is not PsMode.SYNC:
        raise ValueError(f"ps.grads_to_wait: only the sync mode waits for pushes; the mode is {ps.mode}")
    if ps.pull_every > 1 and ps.mode is not PsMode.LOCAL:
        raise ValueError(f"ps.pull_every: only the local mode pulls dense variables seldom; the mode is {ps.mode}")
    if replicas and ps.max_staleness and ps.mode is PsMode.HYBRID:
        raise ValueError(
            f"ps.max_staleness: {ps.max_staleness} in hybrid mode, where no push can be computed again alone; "
            "--pipeline_depth bounds how old rows are, or use --ps_mode=async"
        )
    return strategy, ps.model_copy(update={"replicas": replicas})


def _fill_in_workers(workers: WorkersSpec, cluster: ClusterSpec | None) -> WorkersSpec:
    low = workers.min or 1
    high = workers.max or max(workers.replicas, low)
    if low > high:
        raise ValueError(f"workers: min {low} is above max {high}; write them as min <= max")
    if not low <= workers.replicas <= high:
        raise ValueError(f"workers: replicas {workers.replicas} is outside min {low} .. max {high}")
    if cluster is None:
        threads = workers.threads or max(1, (os.cpu_count() or 1) // high)
    else:
        threads = workers.threads or max(1, int(parse_quantity(cluster.worker.requests.get("cpu", "1"))))
    return workers.model_copy(update={"min": low, "max": high, "threads": threads})
