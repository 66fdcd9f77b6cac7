"""Trains a model file in the lease modes: the whole job of a worker in the order it happens, with its evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from elasticdl.checkpoint import captured_state as images
from elasticdl.checkpoint.captured_state import CapturedState
from elasticdl.checkpoint.export import ExportedProgram
from elasticdl.data.dataset import Mode
from elasticdl.data.plan import TrainingPlan, make_plan
from elasticdl.faults import Faults
from elasticdl.model import tensors
from elasticdl.model.callbacks import BestMetric, Callback
from elasticdl.model.compiled import check_compiles_parts, make_eager
from elasticdl.model.contract import Contract
from elasticdl.model.embeddings.row_sources import ReadOnlyRows, TrainingRows
from elasticdl.model.evaluation import evaluate_batches
from elasticdl.model.trainable import TrainableModel
from elasticdl.ps.client import dense
from elasticdl.ps.client.dense import DenseLayout
from elasticdl.ps.client.lookups import EmbeddingLookups
from elasticdl.ps.wire.messages import Ids
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.client import MasterClient
from elasticdl.spec import JobSpec, PsMode
from elasticdl.storage.paths import AnyPath, parse_path
from elasticdl.worker import model_export
from elasticdl.worker.context import WorkerContext, checkpoint_metadata, checkpoint_run_id, load_initial_image
from elasticdl.worker.embeddings.hybrid import EmbeddingLayers, PsTableStore, attach_layers
from elasticdl.worker.leases.batches import LeaseFeed
from elasticdl.worker.leases.client import LeaseClient, MetricPart
from elasticdl.worker.leases.training import LeaseTraining, WorkerTasks
from elasticdl.worker.saver import CheckpointSaver
from elasticdl.worker.train import open_contract, open_dataset
from elasticdl.worker.training.state import seed_everything


def train_by_leases(line: WorkerContext) -> str:
    """Train until the data is drained, the job is stopped, or this worker has left; returns the word of farewell."""
    spec = line.spec
    contract, device = open_contract(line)
    dataset = open_dataset(line, contract, spec.data.training, "training", Mode.TRAINING)
    plan = make_lease_plan(spec, len(dataset.source), dataset.is_shuffled, dataset.window_records)
    feed = LeaseFeed(dataset, plan, spec.plan.minibatch_size)
    seed_everything(spec.plan.seed)
    model = contract.build_model().to(device)
    check_compiles_parts(model)
    optimizer = contract.build_optimizer(model, spec.plan.learning_rate)
    callbacks = contract.make_callbacks(plan.steps_per_epoch)
    attached = attach_layers(spec, model, optimizer)
    clients = PsTableStore(spec, line.master)
    lookups = EmbeddingLookups(clients.open_client(), 0 if spec.ps.mode is PsMode.SYNC else spec.ps.depth)
    state = LeaseTrainingState(model, callbacks)
    trainee = contract.make_trainable(model, optimizer, lambda: _call_on_gradients(model, callbacks, lookups.clock))
    layout = DenseLayout.from_variables(trainee.variables())
    lookups.declare([*attached.table_specs, layout.table_spec(attached.optimizer_rule)])
    first = load_initial_image(spec, line.master.directory.checkpoints(spec), checkpoint_run_id(line))
    if first is not None:
        images.restore_state(first, model, None)
    layers = LeaseTables(attached, lookups, clients)
    evaluation = LeaseEvaluation(line, contract, state, attached, clients, device)
    with MasterClient.connect(line.master.directory, spec.timing.rpc_s, line.env.run, line.master.worker) as master:
        leases = LeaseClient(master, line.master.worker, spec.timing.heartbeat_s)
        deeds = WorkerTasks(
            prepare=lambda: _prepare_state(
                line, plan, attached, lookups, layout, trainee, first, evaluation.records, callbacks
            ),
            evaluate=evaluation.evaluate_lease,
            save=_make_save(line, plan, state, clients, contract.model_files()),
            export=lambda path: model_export.export_model(
                parse_path(path, spec.timing.store_s),
                line,
                contract,
                model_export.ModelToExport(model, layers, state.step, plan.total_records, callbacks),
                feed.read_sample(),
                device,
            ),
            stop=lambda why: _stop_job(master, why),
            end=master.finish_training,
        )
        training = LeaseTraining(
            spec, line.master, leases, feed, trainee, layers, lookups, layout, deeds, callbacks,
            lambda step: contract.rate_after(optimizer, step), lambda batch: tensors.move_batch(batch, device),
            Faults.parse(line.env.faults, line.env.worker),
        )  # fmt: skip
        model.train()
        for callback in callbacks:
            callback.on_train_begin(model)
        farewell = training.run()
        for callback in callbacks:
            callback.on_train_end(model)
        leases.close()
    feed.close()
    return farewell


def make_lease_plan(spec: JobSpec, records: int, is_shuffled: bool, window_records: int) -> TrainingPlan:
    """Positions of all epochs; a step is one batch of one worker."""
    alone = spec.plan.model_copy(update={"global_batch_size": spec.plan.minibatch_size, "logical_ranks": 1})
    return make_plan(records, alone, spec.data, is_shuffled, window_records)


class LeaseTrainingState:
    """What a checkpoint has of the model besides its rows: the newest dense values, and statistics of this worker."""

    def __init__(self, model: nn.Module, callbacks: list[Callback]) -> None:
        self.model = model
        self.callbacks = callbacks
        self.step = 0
        self.progress = b""

    def capture(self) -> CapturedState:
        image = images.capture_state(self.model, None, self.step, 0)
        image.meta["callbacks"] = [callback.state_dict() for callback in self.callbacks]
        image.meta["progress"] = self.progress.decode()
        return image


class LeaseTables:
    """The embedding layers of a model in training, and their tables at its end."""

    def __init__(self, attached: EmbeddingLayers, lookups: EmbeddingLookups, clients: PsTableStore) -> None:
        self._attached = attached
        self._lookups = lookups
        self._clients = clients
        self._foresight = attached.lookahead()
        source = TrainingRows(lookups)
        source.creates = True
        attached.attach_source(source)

    def begin_batch(self, features: Any) -> None:
        self._foresight.begin_batch(features)

    def predict_ids(self, features: Any) -> Mapping[str, list[Ids]]:
        return self._foresight.predict_ids(features)

    def export_writer(self, checkpoint: AnyPath | None = None) -> Callable[[Path], ExportedProgram] | None:
        return self._clients.export_writer(checkpoint)

    def full_model(self) -> AbstractContextManager[None]:
        return self._attached.full_model(self._lookups.client, self._clients.read_rows)


def _prepare_state(
    line: WorkerContext,
    plan: TrainingPlan,
    attached: EmbeddingLayers,
    lookups: EmbeddingLookups,
    layout: DenseLayout,
    trainee: TrainableModel,
    first: CapturedState | None,
    validation_records: int,
    callbacks: Sequence[Callback],
) -> None:
    """Rows came back with the ps where there is a checkpoint; what is not among them begins as the model was built."""
    attached.put_initial_rows(lookups.client)
    lookups.client.insert_rows(dense.DENSE_TABLE, layout.block_ids, layout.pack(trainee.variables()))
    progress = (
        str(first.meta.get("progress", "")).encode() if first is not None and line.spec.checkpoint.resume else b""
    )
    watching = next((callback for callback in callbacks if isinstance(callback, BestMetric)), None)
    line.master.report_plan(
        plan.total_steps, plan.total_records, plan.records_per_epoch, plan.steps_per_epoch, validation_records,
        watching.metric if watching else "", best_is_least=watching is not None and watching.mode == "min",
        progress=progress,
    )  # fmt: skip


def _make_save(
    line: WorkerContext,
    plan: TrainingPlan,
    state: LeaseTrainingState,
    clients: PsTableStore,
    files: Mapping[str, bytes],
) -> Callable[[int, bytes, bool], None]:
    spec = line.spec
    directory = line.master.directory.checkpoints(spec)
    extra = checkpoint_metadata(spec, plan, checkpoint_run_id(line))
    saver = CheckpointSaver(
        state, clients.begin_snapshot, line.master, directory, spec.checkpoint.keep, extra,
        one_at_a_time=True, retry_s=spec.checkpoint.retry_s, is_on=spec.has_durable_checkpoints, files=files,
    )  # fmt: skip

    def save(step: int, progress: bytes, wait: bool) -> None:
        state.step, state.progress = step, progress
        (saver.save_and_wait if wait else saver.save)()

    return save


def _call_on_gradients(model: nn.Module, callbacks: Sequence[Callback], step: int) -> None:
    for callback in callbacks:
        callback.on_gradients(model, step)


def _stop_job(master: MasterClient, why: str) -> None:
    master.stop(at_once=False, reason=why)


class HasModel(Protocol):
    model: nn.Module


class LeaseEvaluation:
    """A second model, which looks rows up and makes none; it takes dense values and statistics from the first."""

    def __init__(
        self,
        line: WorkerContext,
        contract: Contract,
        trained: HasModel,
        attached: EmbeddingLayers,
        clients: PsTableStore,
        device: torch.device,
    ) -> None:
        self._minibatch = line.spec.plan.minibatch_size
        self._trained = trained
        self._device = device
        self.records = 0
        if not line.spec.data.validation:
            return
        self._dataset = open_dataset(line, contract, line.spec.data.validation, "validation", Mode.EVALUATION)
        self.records = len(self._dataset.source)
        self._metrics = contract.make_metrics()
        self._model = make_eager(contract.build_model()).to(device)
        client = clients.open_client()
        client.declare(attached.table_specs)
        attached.for_model(self._model).attach_source(ReadOnlyRows(client))

    def evaluate_lease(self, lease: pb.Lease) -> Iterator[tuple[int, Mapping[str, MetricPart]]]:
        self._model.load_state_dict(self._trained.model.state_dict())
        first = lease.start + lease.done
        yield from evaluate_batches(
            self._model, self._metrics, self._dataset, first, lease.stop, self._minibatch, self._device
        )
