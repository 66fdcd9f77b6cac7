"""Trains a model file in the lease modes: the whole job of a worker in the order it happens, with its evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from elasticdl.checkpoint.captured_state import CapturedState, capture_state, restore_state
from elasticdl.checkpoint.export import ExportedProgram
from elasticdl.data.dataset import Mode
from elasticdl.data.plan import TrainingPlan, make_plan
from elasticdl.faults import Faults
from elasticdl.model import tensors
from elasticdl.model.callbacks import Callback
from elasticdl.model.compiled import check_compiles_parts, make_eager
from elasticdl.model.contract import Contract
from elasticdl.model.embeddings.interface import EmbeddingLayers
from elasticdl.model.embeddings.row_sources import ReadOnlyRows, TrainingRows
from elasticdl.model.evaluation import evaluate_batches
from elasticdl.model.reduction import MetricPart
from elasticdl.ps.client import dense
from elasticdl.ps.client.dense import DenseLayout
from elasticdl.ps.client.lookups import EmbeddingLookups
from elasticdl.ps.wire.messages import Ids
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.client import MasterClient
from elasticdl.spec import JobSpec, PsMode
from elasticdl.storage.paths import AnyPath, parse_path
from elasticdl.worker import model_export
from elasticdl.worker.assembly import describe_plan
from elasticdl.worker.checkpoints import checkpoint_metadata, checkpoint_run_id, load_initial_state
from elasticdl.worker.context import WorkerContext, choose_device
from elasticdl.worker.embeddings.hybrid import PsTableStore, attach_layers
from elasticdl.worker.leases.batches import LeaseFeed
from elasticdl.worker.leases.client import LeaseClient
from elasticdl.worker.leases.training import LeaseModel, LeaseTrainer, WorkerTasks
from elasticdl.worker.saver import CheckpointSaver, SaverOptions
from elasticdl.worker.train import open_contract, open_dataset
from elasticdl.worker.training.numerics import seed_everything


def train_by_leases(context: WorkerContext) -> str:
    """Train until the data is drained, the job is stopped, or this worker has left; returns the exit reason."""
    spec = context.spec
    contract, device = open_contract(context)
    dataset = open_dataset(context, contract, spec.data.training, "training", Mode.TRAINING)
    plan = make_lease_plan(spec, len(dataset.source), dataset.is_shuffled, dataset.window_records)
    feed = LeaseFeed(dataset, plan, spec.plan.minibatch_size)
    feed.start()
    seed_everything(spec.plan.seed)
    model = contract.build_model().to(device)
    check_compiles_parts(model)
    optimizer = contract.build_optimizer(model, spec.plan.learning_rate)
    state = LeaseTrainingState(model, contract.make_callbacks(plan.steps_per_epoch))
    layers = attach_layers(spec, model, optimizer)
    store = PsTableStore.open(spec, context.master)
    first = load_initial_state(spec, context.master.directory.checkpoints(spec), checkpoint_run_id(context))
    lease_model = _open_model(context, contract, state, optimizer, layers, store, first)
    evaluation = LeaseEvaluation(context, contract, state, layers, store, device)

    def prepare() -> None:
        _put_first_state(layers, lease_model)
        planned = describe_plan(plan, state.callbacks, evaluation.records)
        if first is not None and spec.checkpoint.resume:
            planned.progress = str(first.meta.get("progress", "")).encode()
        context.master.report_plan(planned)

    def export(path: str) -> None:
        trained = model_export.ModelToExport(model, lease_model.tables, state.step, plan.total_records, state.callbacks)
        target = parse_path(path, spec.timing.store_retry_s)
        model_export.export_model(target, context, contract, trained, feed.read_sample(), device)

    master = context.master
    with MasterClient.connect(master.directory, spec.timing.rpc_timeout_s, context.env.run, master.worker) as client:
        leases = LeaseClient(client, master.worker, spec.timing.heartbeat_interval_s)

        def stop(reason: str) -> None:
            client.stop(at_once=False, reason=reason)

        tasks = WorkerTasks(
            prepare=prepare,
            evaluate=evaluation.evaluate_lease,
            save=_make_save(context, plan, state, store, contract.model_files()),
            export=export,
            stop=stop,
            end=client.finish_training,
        )
        faults = Faults.parse(context.env.faults, context.env.worker)
        training = LeaseTrainer(spec, master, leases, feed, lease_model, tasks, faults)
        model.train()
        for callback in state.callbacks:
            callback.on_train_begin(model)
        exit_reason = training.run()
        for callback in state.callbacks:
            callback.on_train_end(model)
        leases.close()
    feed.close()
    return exit_reason


def _open_model(
    context: WorkerContext,
    contract: Contract,
    state: LeaseTrainingState,
    optimizer: torch.optim.Optimizer,
    layers: EmbeddingLayers,
    store: PsTableStore,
    first: CapturedState | None,
) -> LeaseModel:
    """Declare the tables of the model on the ps, and load the first state into the model."""
    spec, model = context.spec, state.model
    device = choose_device(spec, context.env)
    lookups = EmbeddingLookups(store.open_client(), 0 if spec.ps.mode is PsMode.SYNC else spec.ps.pipeline_depth)
    trainable = contract.make_trainable(model, optimizer, lambda: state.call_on_gradients(lookups.clock))
    layout = DenseLayout.from_variables(trainable.variables())
    lookups.declare([*layers.table_specs, layout.table_spec(layers.optimizer_rule)])
    if first is not None:
        restore_state(first, model, None)
    return LeaseModel(
        trainable,
        LeaseTables(layers, lookups, store),
        lookups,
        layout,
        state.callbacks,
        rate_after=lambda step: contract.rate_after(optimizer, step),
        move_batch=lambda batch: tensors.move_batch(batch, device),
    )


def make_lease_plan(spec: JobSpec, records: int, is_shuffled: bool, window_records: int) -> TrainingPlan:
    """The plan of a lease training: a step is one batch of one worker."""
    batch_plan = spec.plan.model_copy(update={"global_batch_size": spec.plan.minibatch_size, "logical_ranks": 1})
    return make_plan(records, batch_plan, spec.data, is_shuffled, window_records)


class LeaseTrainingState:
    """The part of a checkpoint besides the rows: the newest dense values, and the statistics of this worker."""

    def __init__(self, model: nn.Module, callbacks: list[Callback]) -> None:
        self.model = model
        self.callbacks = callbacks
        self.step = 0
        self.progress = b""

    def call_on_gradients(self, step: int) -> None:
        for callback in self.callbacks:
            callback.on_gradients(self.model, step)

    def capture(self) -> CapturedState:
        captured = capture_state(self.model, None, self.step, 0)
        captured.meta["callbacks"] = [callback.state_dict() for callback in self.callbacks]
        captured.meta["progress"] = self.progress.decode()
        return captured


class LeaseTables:
    """The embedding layers of a model in training, and their tables for the export."""

    def __init__(self, layers: EmbeddingLayers, lookups: EmbeddingLookups, store: PsTableStore) -> None:
        self._layers = layers
        self._lookups = lookups
        self._store = store
        self._lookahead = layers.lookahead()
        source = TrainingRows(lookups)
        source.creates = True
        layers.attach_source(source)

    def begin_batch(self, features: Any) -> None:
        self._lookahead.begin_batch(features)

    def predict_ids(self, features: Any) -> Mapping[str, list[Ids]]:
        return self._lookahead.predict_ids(features)

    def export_writer(self, checkpoint: AnyPath | None = None) -> Callable[[Path], ExportedProgram] | None:
        return self._store.export_writer(checkpoint)

    def full_model(self) -> AbstractContextManager[None]:
        return self._layers.full_model(self._lookups.client, self._store.read_rows)


def _put_first_state(layers: EmbeddingLayers, model: LeaseModel) -> None:
    """Put the model as it was built, or restored, on the ps.

    Rows of a checkpoint came back with the ps; ids that are not among them begin as the model was built.
    """
    layers.put_initial_rows(model.lookups.client)
    values = model.layout.pack(model.trainable.variables())
    model.lookups.client.insert_rows(dense.DENSE_TABLE, model.layout.block_ids, values)


def _make_save(
    context: WorkerContext,
    plan: TrainingPlan,
    state: LeaseTrainingState,
    store: PsTableStore,
    model_files: Mapping[str, bytes],
) -> Callable[[int, bytes, bool], None]:
    spec = context.spec
    directory = context.master.directory.checkpoints(spec)
    metadata = checkpoint_metadata(spec, plan, checkpoint_run_id(context))
    saver = CheckpointSaver(
        state,
        store.begin_snapshot,
        context.master,
        SaverOptions(
            directory,
            spec.checkpoint.keep_last,
            metadata,
            retry_s=spec.checkpoint.retry_s,
            one_at_a_time=True,
            is_on=spec.has_durable_checkpoints,
            model_files=model_files,
        ),
    )
    saver.start()

    def save(step: int, progress: bytes, wait: bool) -> None:
        state.step, state.progress = step, progress
        (saver.save_and_wait if wait else saver.save)()

    return save


class LeaseEvaluation:
    """A second model, which looks rows up without making new ones. Dense values and statistics come from the first."""

    def __init__(
        self,
        context: WorkerContext,
        contract: Contract,
        trained: LeaseTrainingState,
        layers: EmbeddingLayers,
        store: PsTableStore,
        device: torch.device,
    ) -> None:
        self._minibatch = context.spec.plan.minibatch_size
        self._trained = trained
        self._device = device
        self.records = 0
        if not context.spec.data.validation:
            return
        self._dataset = open_dataset(context, contract, context.spec.data.validation, "validation", Mode.EVALUATION)
        self.records = len(self._dataset.source)
        self._metrics = contract.make_metrics()
        self._model = make_eager(contract.build_model()).to(device)
        client = store.open_client()
        client.declare(layers.table_specs)
        layers.for_model(self._model).attach_source(ReadOnlyRows(client))

    def evaluate_lease(self, lease: pb.Lease) -> Iterator[tuple[int, Mapping[str, MetricPart]]]:
        self._model.load_state_dict(self._trained.model.state_dict())
        first = lease.start + lease.done
        yield from evaluate_batches(
            self._model, self._metrics, self._dataset, first, lease.stop, self._minibatch, self._device
        )
