"""Trains a model file: the whole job of a worker in the order it happens, and how a batch is computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import nn

from elasticdl.data.bad_records import BadRecords
from elasticdl.data.dataset import Batch, Dataset, Mode
from elasticdl.data.interface import Indices, RecordSource
from elasticdl.data.plan import TrainingPlan, make_plan
from elasticdl.data.sources import open_source
from elasticdl.errors import DataUnavailable, ElasticDLError, LossNotFinite, PermanentError, SpecError, is_job_error
from elasticdl.model import contract as contracts
from elasticdl.model import definition, source, tensors
from elasticdl.model.check import check_framework_options
from elasticdl.model.compiled import check_compiles_parts, make_eager, unwrap_compiled
from elasticdl.model.contract import Contract
from elasticdl.model.source import Framework
from elasticdl.spec import ComputePrecision, JobKind, JobSpec, PlanSpec, Strategy
from elasticdl.storage.paths import parse_path
from elasticdl.worker import model_export
from elasticdl.worker.assembly import ElasticTraining, assemble_training
from elasticdl.worker.checkpoints import checkpoint_run_id, is_checkpoint_due
from elasticdl.worker.context import WorkerContext, choose_device
from elasticdl.worker.embeddings.tables import EmbeddingTables, open_tables
from elasticdl.worker.evaluator import Evaluator
from elasticdl.worker.rounds.engine import ElasticEngine
from elasticdl.worker.shutdown import fail_job, fail_on_loss, finish_training, save_before_crash
from elasticdl.worker.training.loop import TrainingSetup
from elasticdl.worker.training.numerics import configure_numerics, seed_everything
from elasticdl.worker.training.step import Step
from elasticdl.worker.training.user_state import UserState, check_scalers
from elasticdl.worker.training.warm_up import warm_up_model


def train_model_file(context: WorkerContext) -> str:
    """Train until the plan is done, the job is stopped, or this worker has left; returns the exit reason."""
    if context.spec.trains_by_leases:
        from elasticdl.worker.leases.train import train_by_leases  # needs the native core

        return train_by_leases(context)
    job = _build_training(context)
    job.training.start()
    if (failure_reason := _run_steps(context, job)) is not None:
        return failure_reason
    for callback in job.training.training.callbacks:
        callback.on_train_end(job.setup.model)
    exit_reason = finish_training(context, job.training, lambda path: _export(context, job, path))
    job.training.close()
    return exit_reason


@dataclass(frozen=True)
class _ModelFileTraining:
    """The training of a model file, with the parts that its steps and its export need."""

    contract: Contract
    dataset: Dataset
    plan: TrainingPlan
    setup: TrainingSetup
    loop: ModelLoop
    training: ElasticTraining


def _build_training(context: WorkerContext) -> _ModelFileTraining:
    # The order counts: what is built draws random numbers.
    spec = context.spec
    contract, device = open_contract(context)
    dataset = open_dataset(context, contract, spec.data.training, "training", Mode.TRAINING)
    plan = make_plan(len(dataset.source), spec.plan, spec.data, dataset.is_shuffled, dataset.window_records)
    seed_everything(spec.plan.seed)
    built = contract.build_model().to(device)
    model = unwrap_compiled(built)  # its names have no prefix if the file has compiled it
    optimizer = contract.build_optimizer(model, spec.plan.learning_rate)
    tables = open_tables(
        spec, context.master, model, optimizer, lambda step: is_checkpoint_due(spec, step) or step >= plan.total_steps
    )
    evaluator = _make_evaluator(context, contract, tables, device)
    loop = ModelLoop(contract, built, spec.plan, device)
    loop.check_optimizer(optimizer)
    if tables.has_rows:
        check_compiles_parts(built)
    built.train()
    warm_up_model(
        model,
        plan,
        lambda step, rank: _read_sample(dataset, plan.rank_slice(step, rank), device),
        lambda batch: (micro.loss for micro in loop.micro_batches(batch.features, batch.labels)),
    )
    setup = TrainingSetup(
        model,
        [optimizer],
        device,
        tables,
        contract.make_callbacks(plan.steps_per_epoch),
        contract.learning_rate,
        loop.user_state,
        contract.model_files(),
    )
    training = assemble_training(context, setup, dataset, plan, evaluator)
    return _ModelFileTraining(contract, dataset, plan, setup, loop, training)


def _run_steps(context: WorkerContext, job: _ModelFileTraining) -> str | None:
    """Compute all steps; returns why the job failed if its state is saved, and None at the end of the loop."""
    engine = job.training.engine
    (optimizer,) = job.setup.optimizers
    try:
        for step in engine.steps():
            _compute_step(job.loop, engine, step)
            job.loop.apply_update(optimizer, is_explicit=engine.training.is_explicit)
    except LossNotFinite as exc:
        fail_on_loss(context, job.training, exc)
        return "the loss is not finite"
    except Exception as exc:
        if isinstance(exc, DataUnavailable) or is_job_error(exc):
            fail_job(context, job.training, exc)
            return str(exc)
        if not isinstance(exc, PermanentError):
            save_before_crash(context, job.training, exc)
        raise
    return None


def _export(context: WorkerContext, job: _ModelFileTraining, path: str) -> None:
    training, setup = job.training.training, job.setup
    trained = model_export.ModelToExport(
        setup.model, setup.tables, training.step, job.plan.records_until(training.step), training.callbacks
    )
    target = parse_path(path, context.spec.timing.store_retry_s)
    sample = job.dataset.read_valid_batch(job.plan.rank_slice(0, 0))
    model_export.export_model(target, context, job.contract, trained, sample, setup.device)


def _compute_step(loop: ModelLoop, engine: ElasticEngine, step: Step) -> None:
    """Compute all batches of a step; once again if the user's code fails, because the fault may pass."""
    try:
        loop.compute_step(step)
    except ElasticDLError:
        raise
    except Exception as exc:
        engine.retry_step(step, exc)
        loop.compute_step(step)


def open_contract(context: WorkerContext) -> tuple[Contract, torch.device]:
    """The contract of the job's model file, and the device that this worker computes on."""
    spec = context.spec
    device = choose_device(spec, context.env)
    configure_numerics(spec.workers.threads, device.type, spec.plan.reproducible)
    return load_job_contract(spec), device


def open_dataset(context: WorkerContext, contract: Contract, uri: str | None, name: str, mode: Mode) -> Dataset:
    """The dataset that dataset_fn makes of the data. Bad records, as many as the job allows, are reported."""
    dataset = contract.make_dataset(open_record_source(context, contract, uri, name), mode)
    return replace(dataset, bad_records=BadRecords(context.spec.data.bad_records, context.master.report_bad_record))


def open_record_source(context: WorkerContext, contract: Contract, uri: str | None, name: str) -> RecordSource:
    """The records of the training, validation or prediction data: by the model file's own reader if it has one."""
    data = context.spec.data
    custom = contract.make_reader(uri or "", dict(data.reader_params))
    if custom is not None:
        return custom
    if not uri:
        raise SpecError(f"data.{name}: expected where the {name} data lies; give --{name}_data")
    return open_source(uri, data, context.master.directory.index, run=checkpoint_run_id(context))


def _make_evaluator(
    context: WorkerContext, contract: Contract, tables: EmbeddingTables, device: torch.device
) -> Evaluator | None:
    if not context.spec.data.validation:
        return None
    dataset = open_dataset(context, contract, context.spec.data.validation, "validation", Mode.EVALUATION)
    model = make_eager(contract.build_model()).to(device)
    tables.attach_model(model)
    return Evaluator(context.spec, context.master, model, contract.make_metrics(), dataset, device)


def _read_sample(dataset: Dataset, records: Indices, device: torch.device) -> Batch | None:
    batch = dataset.read_valid_batch(records)
    return tensors.move_batch(batch, device) if batch is not None else None


def load_job_contract(spec: JobSpec) -> Contract:
    """The contract of the job's model file. TensorFlow is imported for files in Keras only."""
    assert spec.model is not None
    tree = source.parse_source(definition.locate_model_file(spec.model).file)
    if source.detect_framework(tree) is Framework.TORCH:
        return contracts.load_contract(spec.model, spec.kind)
    if spec.workers.device != "cpu":
        raise SpecError(f"workers.device: {spec.workers.device}: Keras models train on the processor; use --device=cpu")
    check_framework_options(spec, Framework.KERAS)
    from elasticdl.keras import runtime
    from elasticdl.keras.adapter import contract as keras_contracts
    from elasticdl.keras.embeddings.placement import EmbeddingPlacement

    runtime.configure_numerics(spec.workers.threads, reproducible=spec.plan.reproducible)
    on_ps = spec.strategy is Strategy.PS and spec.kind is JobKind.TRAINING
    placement = EmbeddingPlacement(on_ps, spec.ps.embeddings if on_ps else "none", spec.ps.embedding_bytes)
    return keras_contracts.load_keras_contract(spec.model, spec.kind, placement)


_AUTOCAST_TYPES = {ComputePrecision.BF16: torch.bfloat16, ComputePrecision.FP16: torch.float16}


class MicroBatch(NamedTuple):
    """A part of a batch, or the whole batch, after its forward pass."""

    loss: torch.Tensor  # the mean over its records
    records: int | None  # None: all of the batch


class ModelLoop:
    """Computes the batches of a job's plan. With fp16, the `GradScaler` is part of the training state."""

    def __init__(self, contract: Contract, model: nn.Module, plan: PlanSpec, device: torch.device) -> None:
        """`model` is called as it is: compiled if the file has compiled it."""
        self._contract = contract
        self._model = model
        self._micro_batch = plan.micro_batch_size
        self._type = _AUTOCAST_TYPES.get(plan.precision)
        self._device = device
        scaler = torch.amp.GradScaler(device.type) if plan.precision is ComputePrecision.FP16 else None
        self._scaler = scaler
        self.user_state = UserState(objects={"scaler": scaler}) if scaler is not None else None
        if self.user_state is not None:
            self.user_state.start_scalers(device)

    def check_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Raise SpecError if the updates of this optimizer would not be the same in all workers."""
        if self.user_state is not None:
            check_scalers([optimizer], self.user_state, "plan.precision: fp16")

    def micro_batches(self, features: Any, labels: Any) -> Iterator[MicroBatch]:
        """The micro-batches of a batch, in the order of its records. Each is computed when it is asked for."""
        records = tensors.batch_size(features) if self._micro_batch else 0
        if records <= self._micro_batch:
            yield MicroBatch(self._compute_loss(features, labels), None)
            return
        for start in range(0, records, self._micro_batch):
            stop = min(start + self._micro_batch, records)
            part = tensors.slice_rows(features, start, stop), tensors.slice_rows(labels, start, stop)
            yield MicroBatch(self._compute_loss(*part), stop - start)

    def compute_step(self, step: Step) -> None:
        """Compute all batches of a step; its gradients are whole afterwards."""
        for features, labels in step:
            for loss, records in self.micro_batches(features, labels):
                step.backward(loss, records=records, scaler=self._scaler)

    def apply_update(self, optimizer: torch.optim.Optimizer, *, is_explicit: bool) -> None:
        """Apply the update of a step unless the job does. `is_explicit`: the job applies no update."""
        if self._scaler is None:
            if is_explicit:  # the state is that of a training with a scaler
                optimizer.step()
        elif any(parameter.grad is not None for group in optimizer.param_groups for parameter in group["params"]):
            # Gradients are unscaled before the optimizer's step begins, and callbacks see them there.
            self._scaler.step(optimizer)
            self._scaler.update()

    def _compute_loss(self, features: Any, labels: Any) -> torch.Tensor:
        with self._autocast():
            loss = self._contract.batch_loss(self._model, features, labels)
        return loss.float() if loss.dtype in _AUTOCAST_TYPES.values() else loss

    def _autocast(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._type is None else torch.autocast(self._device.type, dtype=self._type)
