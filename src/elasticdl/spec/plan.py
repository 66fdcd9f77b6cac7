"""The part of a JobSpec that determines the result bit for bit: the records of each step, and the size of updates."""

from __future__ import annotations

from enum import StrEnum

from elasticdl.spec.fields import NotNegative, Positive, SpecModel

MAX_SCALE = 32  # of the batch, by default


class LrScaling(StrEnum):
    """How the learning rate changes when the batch is scaled by S."""

    NONE = "none"  # the batch is not scaled
    ADASCALE = "adascale"  # times the gain, 1 … S, by the noise of the gradient
    SQRT = "sqrt"  # times √S
    LINEAR = "linear"  # times S


class ComputePrecision(StrEnum):
    """The precision of the loss of a model file. Weights, sums of gradients and evaluations are always float32."""

    FP32 = "fp32"
    BF16 = "bf16"  # with torch.autocast
    FP16 = "fp16"  # with torch.autocast and a GradScaler


class PlanSpec(SpecModel):
    """The deterministic plan: the records of each step, for any number of workers."""

    minibatch_size: Positive = 64
    global_batch_size: NotNegative = 0  # 0: minibatch_size x workers.replicas, filled in by JobSpec
    logical_ranks: NotNegative = 0  # 0: max workers, filled in by JobSpec
    epochs: Positive = 1
    max_steps: NotNegative = 0  # 0: no limit
    seed: NotNegative = 0
    shuffle: bool = True
    drop_last: bool = False
    reproducible: bool = True
    learning_rate: float | None = None  # passed to optimizer(parameters, lr=...)
    lr_scaling: LrScaling = LrScaling.NONE  # unless none, the batch may be scaled while the job runs
    batch_schedule: dict[int, Positive] = {}  # scales of the batch, by the step at which they begin
    max_batch_size: NotNegative = 0  # maximum records per update; 0: 32 global batches
    precision: ComputePrecision = ComputePrecision.FP32  # of a model file
    micro_batch_size: NotNegative = 0  # maximum records per backward pass of a model file; 0: a rank's complete slice
    guard_steps: NotNegative = 200  # workers compare their state every N steps; 0: never

    def max_scale(self, global_batch: int) -> int:
        """The maximum number of global batches per update."""
        if self.lr_scaling is LrScaling.NONE:
            return 1
        return max(1, self.max_batch_size // max(1, global_batch)) if self.max_batch_size else MAX_SCALE


def fill_in_plan(plan: PlanSpec, workers: int, max_workers: int, *, is_script: bool) -> PlanSpec:
    """The plan of a job with this number of workers, with all defaults filled in. Raises ValueError if it is wrong."""
    ranks = plan.logical_ranks or max_workers
    batch = plan.global_batch_size or plan.minibatch_size * workers
    if ranks < max_workers:
        raise ValueError(
            f"plan.logical_ranks: {ranks} is below the {max_workers} workers the job may have; "
            f"every worker needs one. Use --logical_ranks={max_workers} or fewer workers"
        )
    if batch < ranks and not is_script:  # a script sets its batch when it joins
        raise ValueError(
            f"plan.global_batch_size: {batch} is smaller than the {ranks} logical ranks that share it; "
            f"use at least --global_batch_size={ranks}, or fewer logical ranks"
        )
    _check_batches(plan, batch, is_script=is_script)
    return plan.model_copy(update={"logical_ranks": ranks, "global_batch_size": batch})


def _check_batches(plan: PlanSpec, batch: int, *, is_script: bool) -> None:
    if plan.lr_scaling is LrScaling.NONE:
        if plan.batch_schedule or plan.max_batch_size:
            name = "batch_schedule" if plan.batch_schedule else "max_batch_size"
            raise ValueError(f"plan.{name}: the batch of this job is not scaled; add --adaptive_batch=RULE")
        return
    if plan.max_batch_size and plan.max_batch_size < batch and not is_script:
        raise ValueError(f"plan.max_batch_size: {plan.max_batch_size} is smaller than the global batch of {batch}")
    if any(step < 0 for step in plan.batch_schedule):
        raise ValueError(f"plan.batch_schedule: steps are counted from 0, received {min(plan.batch_schedule)}")
    largest = max(plan.batch_schedule.values(), default=1)
    if not is_script and largest > plan.max_scale(batch):
        raise ValueError(
            f"plan.batch_schedule: {largest} times the batch of {batch} is more than plan.max_batch_size allows, "
            f"{plan.max_scale(batch)} times; use --max_batch_size={largest * batch}"
        )
