"""The JobSpec: one training, evaluation or prediction run, resolved and frozen.

It is the complete description of a job. `JobSpec` fills in defaults that depend on other fields itself, so a dumped
spec has no implicit values.
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
MAX_LOSS_POINTS = 5000  # of the loss curve, by default


class JobKind(StrEnum):
    TRAINING = "training"
    EVALUATION = "evaluation"
    PREDICTION = "prediction"
    SCRIPT = "script"


class ModelSpec(SpecModel):
    """The model file, and its function that builds the model."""

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
    """The number of workers, and the resources of each."""

    replicas: Positive = 2
    min: NotNegative = 0  # 0: one, filled in
    max: NotNegative = 0  # 0: replicas, filled in
    threads: NotNegative = 0  # 0: cores / max workers, at least one, filled in; the result depends on it
    device: Literal["cpu", "cuda", "auto"] = "cpu"
    cpu_capability: Literal["", "default", "avx2", "avx512"] = ""  # pins the instruction set; the result depends on it
    failure_budget: NotNegative = 3
    address: str = "127.0.0.1"  # on which replicas of a local job listen
    start_method: StartMethod | None = None  # None: fork, on one machine


def is_loopback(address: str) -> bool:
    """Whether only processes of this machine can reach the address; unknown names count as reachable from others."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


class Strategy(StrEnum):
    """Where the model is held, by the names of the original ElasticDL."""

    ALLREDUCE = "AllreduceStrategy"  # in every worker
    PS = "ParameterServerStrategy"  # embedding tables, and in most modes the complete model, on ps


class PsMode(StrEnum):
    """How workers of a job with ps synchronize."""

    HYBRID = "hybrid"  # embeddings on ps, updated asynchronously; dense layers by the elastic all-reduce
    ASYNC = "async"  # everything on ps, every push applied when it arrives
    SYNC = "sync"  # everything on ps, the mean of `grads_to_wait` pushes applied at once
    LOCAL = "local"  # everything on ps, dense variables pulled every `pull_every` steps only


class PsSpec(SpecModel):
    """The number of parameter servers, and how workers train with them."""

    replicas: int | None = None  # None: one with the PS strategy, else none; filled in
    mode: PsMode = PsMode.HYBRID
    backups: Annotated[int, Field(ge=0, le=1)] = 0  # of each slot, on another ps
    memory_limit: str = ""  # of each ps, e.g. 4Gi or 500M; "": none
    threads: Positive = 2  # of each ps
    max_staleness: NotNegative = 0  # refuse a push computed from values more than this many updates old; 0: never
    scale_lr_by_staleness: bool = False  # divide the learning rate of a push by its staleness
    grads_to_wait: Positive = 1  # sync: pushes per update
    pull_every: Positive = 1  # local: steps between two pulls of the dense variables
    pipeline_depth: NotNegative = 2  # batches that pull and push rows while another batch computes
    wire_dtype: Literal["float32", "float16", "bfloat16"] = "float32"  # of rows and gradients on the network
    embeddings: Literal["auto", "all", "none"] = "auto"  # which embedding layers of the framework move to the ps
    embedding_bytes: NotNegative = 2 << 20  # auto: layers of at least this size

    @field_validator("memory_limit")
    @classmethod
    def _limit_is_a_size(cls, limit: str) -> str:
        parse_size(limit)
        return limit

    @property
    def memory_bytes(self) -> int:
        """The memory limit in bytes; 0: no limit."""
        return parse_size(self.memory_limit)


def _check_address(address: str) -> str:
    """The address without `file://`. Raises ValueError if it is neither a path nor in a known store."""
    if not has_password(address) and (problem := find_address_problem(address)):
        raise ValueError(problem.partition("; received")[0])  # the error of a field repeats its value
    return strip_file_scheme(address)


class CheckpointSpec(SpecModel):
    directory: str = ""  # "": <job directory>/checkpoints
    every_steps: NotNegative = 0  # 0: at the end and on stop only
    keep_last: Positive = 3
    init_from: str = ""  # a checkpoint (or a directory of them) to start from
    resume: bool = False  # continue from the newest checkpoint in `directory`
    retry_s: Seconds = 60.0  # how long the last checkpoint of a job is retried if it cannot be written

    @field_validator("directory", "init_from")
    @classmethod
    def _is_an_address(cls, address: str) -> str:
        return _check_address(address)


class EvaluationSpec(SpecModel):
    """When to evaluate during training. If both are zero: after each epoch, if there is validation data."""

    every_steps: NotNegative = 0
    every_epochs: NotNegative = 0
    wait: bool = False  # wait for the result, so that callbacks act at the same step in every run


class ObservabilitySpec(SpecModel):
    """How much of the training is recorded."""

    log_steps: NotNegative = 0  # a point of the loss curve every N steps; 0: every step, but at most MAX_LOSS_POINTS

    def loss_interval(self, total_steps: int) -> int:
        """The number of steps from one point of the loss curve to the next."""
        return self.log_steps or max(1, -(-total_steps // MAX_LOSS_POINTS))


class TimingSpec(SpecModel):
    """All timeouts and intervals of a job."""

    heartbeat_interval_s: Seconds = 0.25
    heartbeat_timeout_s: Seconds = 1.0  # silence after which a worker is lost, if no step ends either
    regroup_s: Seconds = 0.3  # time until a broken round whose members all seem alive is formed again
    start_timeout_s: Seconds = 1.0  # how long the first ready workers wait for the others, which may join later
    round_timeout_s: Seconds = 10.0  # for forming a round
    state_transfer_timeout_s: Seconds = 30.0  # a state transfer without progress for this time is cancelled
    grace_period_s: Seconds = 30.0  # a preempted or stopped worker has this long to leave
    lease_s: Seconds = 60.0  # a lease without progress for this time goes back to the queue
    lease_attempts: Positive = 3
    relaunch_backoff_s: Seconds = 1.0  # before a crashed worker is launched again; doubles each time
    rpc_timeout_s: Seconds = 10.0
    ps_timeout_s: Seconds = 30.0  # a worker fails if a ps that is not reported lost does not answer for this time
    store_retry_s: Seconds = 60.0  # how long requests to an object store that does not answer are retried
    # A worker without progress between two exchanges for this time, and for this many usual steps, is replaced; one
    # that makes progress but completes no step has several times as long.
    stall_timeout_s: SecondsOrOff = 300.0  # 0: never
    stall_steps: Positive = 20
    master_stall_timeout_s: SecondsOrOff = 60.0  # a master or launcher whose loop is stuck is replaced; 0: never
    orphan_timeout_s: Seconds = 600.0  # a worker without a master for this time saves its state and exits

    @property
    def backup_timeout_s(self) -> float:
        """How long a ps waits for another one, shorter than workers wait for it.

        A worker may have to wait twice: for slots that are being moved, then for a backup.
        """
        return self.ps_timeout_s / 3


class SecuritySpec(SpecModel):
    """TLS for all replicas; without it a local job stays on loopback."""

    tls: bool = False  # with the job's own authority, which issues a certificate to each replica
    certificate_lifetime_s: Seconds = 86400.0  # of these certificates, which are renewed after half of it
    certificate: str = ""  # instead: the user's own certificate, the same for all replicas
    key: str = ""
    ca: str = ""  # the CA that signed the certificate
    insecure: bool = False  # allow other machines to reach the job without TLS
    plain_nccl: bool = False  # let NCCL, which cannot encrypt, send gradients between machines in a job with TLS

    @model_validator(mode="after")
    def _all_or_none(self) -> Self:
        files = [bool(self.certificate), bool(self.key), bool(self.ca)]
        if any(files) and not all(files):
            raise ValueError("certificate, key and ca belong together: set all three or none")
        if self.tls and any(files):
            raise ValueError("tls creates certificates for the job: set either tls, or certificate, key and ca")
        if self.insecure and self.is_on:
            raise ValueError("insecure means without TLS, but TLS is on: remove one of them")
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
    strategy: Strategy | None = None  # None: the PS strategy if there are ps, otherwise all-reduce; filled in
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
        """Whether the complete model is on ps, so that workers train on leased shards independently of each other."""
        has_ps = self.kind is JobKind.TRAINING and self.strategy is Strategy.PS
        return has_ps and self.ps.mode is not PsMode.HYBRID

    @property
    def restarts_script(self) -> bool:
        """Whether the script is unmodified: each round restarts it, as torchrun does."""
        return self.script is not None and self.script.compat is not None

    @property
    def has_durable_checkpoints(self) -> bool:
        return self.is_durable(self.checkpoint.directory)

    def is_durable(self, path: str) -> bool:
        """Whether files at `path` are shared by all replicas and outlive them: for pods, on a volume or a store."""
        if self.cluster is None or is_store_address(path):
            return True
        mounts = [volume.mount_path for volume in self.cluster.volumes if not volume.read_only]
        # Assumes that the image's working directory is the root.
        return any(PurePosixPath("/", path).is_relative_to(mount) for mount in mounts)

    @field_validator("output")
    @classmethod
    def _output_is_an_address(cls, address: str) -> str:
        return _check_address(address)

    @field_validator("name")
    @classmethod
    def _name_is_a_label(cls, name: str) -> str:
        if not NAME_PATTERN.fullmatch(name):
            raise ValueError("use 1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit")
        return name

    @model_validator(mode="after")
    def _no_address_has_a_password(self) -> Self:
        # Checked for the whole job, because the error of a single field repeats its value.
        addresses = {
            "output": self.output,
            "checkpoint.directory": self.checkpoint.directory,
            "checkpoint.init_from": self.checkpoint.init_from,
        }
        for name, address in addresses.items():
            if has_password(address):
                raise ValueError(f"{name}: {find_address_problem(address)}")
        return self

    @model_validator(mode="after")
    def _no_open_port_without_tls(self) -> Self:
        address, security = self.workers.address, self.security
        if self.cluster is None and address in ("0.0.0.0", "::"):
            raise ValueError(
                f"workers.address (--address): workers cannot connect to {address}; "
                "use an address of this machine, such as `hostname -I` prints"
            )
        if self.cluster is None and not is_loopback(address) and not security.is_on and not security.insecure:
            raise ValueError(
                f"workers.address (--address): other machines can reach {address}, and without TLS everything is sent "
                "unencrypted, including the job's token; add --tls, or --insecure if you trust this network"
            )
        has_tls = security.is_on or (self.cluster is not None and self.cluster.tls)
        if security.plain_nccl and not has_tls:
            raise ValueError("plain_nccl is an exception from TLS, but TLS is off: remove it, or add TLS")
        return self

    @model_validator(mode="after")
    def _fill_in(self) -> Self:
        workers = _fill_in_workers(self.workers, self.cluster)
        if self.cluster and workers.start_method is not None:
            raise ValueError(
                f"workers.start_method: {workers.start_method} is for local jobs; a pod starts its own interpreter: "
                "remove --start_method"
            )
        if self.cluster and len(self.name) > MAX_NAME_LENGTH:
            raise ValueError(f"name: it becomes part of labels: use at most {MAX_NAME_LENGTH} letters on Kubernetes")
        plan = fill_in_plan(self.plan, workers.replicas, workers.max, is_script=self.kind is JobKind.SCRIPT)
        object.__setattr__(self, "workers", workers)
        object.__setattr__(self, "plan", plan)
        strategy, ps = _fill_in_ps(self.strategy, self.ps)
        object.__setattr__(self, "strategy", strategy)
        object.__setattr__(self, "ps", ps)
        if plan.lr_scaling is not LrScaling.NONE and strategy is Strategy.PS:
            raise ValueError(
                f"plan.lr_scaling: {plan.lr_scaling} with {strategy}, where every batch is pushed separately; "
                "remove --adaptive_batch, or use --distribution_strategy=AllreduceStrategy"
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
    """Refuse precisions and micro-batches that would be ignored, or change the result."""
    plan, precision = spec.plan, spec.plan.precision
    if spec.kind is JobKind.SCRIPT:
        if precision is not ComputePrecision.FP32:
            raise ValueError(f"plan.precision: {precision}: a script sets it with torch.autocast; remove it")
        if plan.micro_batch_size:
            raise ValueError(
                f"plan.micro_batch_size: {plan.micro_batch_size}: a script sets it with "
                "step.backward(loss, records=n); remove it"
            )
    if spec.kind is not JobKind.TRAINING:
        return  # evaluation and prediction compute in float32
    if precision is ComputePrecision.FP16 and (plan.lr_scaling is LrScaling.ADASCALE or _needs_noise(plan)):
        raise ValueError(
            f"plan.precision: fp16 with plan.lr_scaling {plan.lr_scaling}: the noise of scaled gradients is not "
            "measured, so the batch size cannot be chosen; use --precision=bf16, or "
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
            f"plan.precision: {precision} with ps.mode {mode}, which computes in float32: remove --precision, or "
            "use --precision=bf16 with --ps_mode=hybrid or --distribution_strategy=AllreduceStrategy"
        )
    if precision is ComputePrecision.FP16:
        raise ValueError(
            f"plan.precision: fp16 with {spec.strategy}: ps would apply the scaled gradients of rows; "
            "use --precision=bf16, or --distribution_strategy=AllreduceStrategy"
        )
    if spec.plan.micro_batch_size:
        fix = "a smaller --minibatch_size" if spec.trains_by_leases else "more --logical_ranks, each a smaller slice"
        raise ValueError(
            f"plan.micro_batch_size: {spec.plan.micro_batch_size} with {spec.strategy}: rows are pushed once per "
            f"batch; use {fix}"
        )


def _check_compat(spec: JobSpec) -> None:
    """Refuse settings that an unmodified script would ignore."""
    if not spec.restarts_script:
        return
    ignored = {
        "plan.lr_scaling": spec.plan.lr_scaling is not LrScaling.NONE,
        "checkpoint.every_steps": bool(spec.checkpoint.every_steps),
        "checkpoint.init_from": bool(spec.checkpoint.init_from),
        "ps.replicas": bool(spec.ps.replicas),
    }
    for field in [field for field, is_set in ignored.items() if is_set]:
        raise ValueError(f"{field}: not for script.compat={spec.script and spec.script.compat}; remove it")


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
            f"ps.replicas: {replicas} with AllreduceStrategy, which has no ps: remove --num_ps_pods, "
            "or use --distribution_strategy=ParameterServerStrategy"
        )
    if ps.backups and replicas == 1:
        raise ValueError("ps.backups: a backup of each slot needs a second ps; use --num_ps_pods=2 or more")
    if ps.grads_to_wait > 1 and ps.mode is not PsMode.SYNC:
        raise ValueError(f"ps.grads_to_wait: only the sync mode waits for pushes; the mode is {ps.mode}")
    if ps.pull_every > 1 and ps.mode is not PsMode.LOCAL:
        raise ValueError(f"ps.pull_every: only the local mode skips pulls of dense variables; the mode is {ps.mode}")
    if replicas and ps.max_staleness and ps.mode is PsMode.HYBRID:
        raise ValueError(
            f"ps.max_staleness: {ps.max_staleness} in hybrid mode, where a single push cannot be recomputed; "
            "--pipeline_depth limits the age of rows, or use --ps_mode=async"
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
