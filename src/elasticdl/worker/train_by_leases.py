"""A model in the lease modes: the whole job of a worker, in the order it happens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from torch import nn

from elasticdl.checkpoint import image as images
from elasticdl.checkpoint.export import Program
from elasticdl.checkpoint.image import Image
from elasticdl.data.mode import Mode
from elasticdl.data.plan import Plan, plan_of
from elasticdl.embedding.source import Trained
from elasticdl.model import tensors
from elasticdl.model.callbacks import BestMetric, Callback
from elasticdl.model.compiled import check_compiles_parts
from elasticdl.model.trainee import Trainee
from elasticdl.ps import dense
from elasticdl.ps.dense import Layout
from elasticdl.ps.lookups import Lookups
from elasticdl.ps.wire import Ids
from elasticdl.rpc.client import MasterClient
from elasticdl.spec import JobSpec, PsMode
from elasticdl.storage.place import Place, open_place
from elasticdl.testing.faults import Faults
from elasticdl.worker import exporting
from elasticdl.worker.assembly import Line, described, first_image, run_of
from elasticdl.worker.hybrid import AttachedLayers, Clients, attached_of
from elasticdl.worker.lease_evaluation import LeaseEvaluation
from elasticdl.worker.lease_feed import LeaseFeed
from elasticdl.worker.lease_line import LeaseLine
from elasticdl.worker.lease_training import Deeds, LeaseTraining
from elasticdl.worker.saving import Saver
from elasticdl.worker.train import dataset_of, open_contract
from elasticdl.worker.training import seed_everything


def train_by_leases(line: Line) -> str:
    """Train until the data is drained, the job is stopped, or this worker has left; returns the word of farewell."""
    spec = line.spec
    contract, device = open_contract(line)
    dataset = dataset_of(line, contract, spec.data.training, "training", Mode.TRAINING)
    plan = lease_plan(spec, len(dataset.source), dataset.is_shuffled, dataset.window_records)
    feed = LeaseFeed(dataset, plan, spec.plan.minibatch_size)
    seed_everything(spec.plan.seed)
    model = contract.build_model().to(device)
    check_compiles_parts(model)
    optimizer = contract.build_optimizer(model, spec.plan.learning_rate)
    callbacks = contract.callbacks(plan.steps_per_epoch)
    attached = attached_of(spec, model, optimizer)
    clients = Clients(spec, line.link)
    lookups = Lookups(clients.open(), 0 if spec.ps.mode is PsMode.SYNC else spec.ps.depth)
    state = State(model, callbacks)
    trainee = contract.trainee(model, optimizer, lambda: _on_gradients(model, callbacks, lookups.clock))
    layout = Layout.of(trainee.variables())
    lookups.declare([*attached.specs, layout.table(attached.rule)])
    first = first_image(spec, line.link.directory.checkpoints(spec), run_of(line))
    if first is not None:
        images.restore(first, model, None)
    layers = Layers(attached, lookups, clients)
    evaluation = LeaseEvaluation(line, contract, state, attached, clients, device)
    with MasterClient.connect(line.link.directory, spec.timing.rpc_s, line.env.run, line.link.worker) as master:
        leases = LeaseLine(master, line.link.worker, spec.timing.heartbeat_s)
        deeds = Deeds(
            prepare=lambda: _prepare(
                line, plan, attached, lookups, layout, trainee, first, evaluation.records, callbacks
            ),
            evaluate=evaluation.run,
            save=_saving(line, plan, state, clients, contract.model_files()),
            export=lambda path: exporting.export(
                open_place(path, spec.timing.store_s),
                line,
                contract,
                exporting.Trained(model, layers, state.step, plan.total_records, callbacks),
                feed.sample(),
                device,
            ),
            stop=lambda why: _stop(master, why),
            end=master.end,
        )
        training = LeaseTraining(
            spec, line.link, leases, feed, trainee, layers, lookups, layout, deeds, callbacks,
            lambda step: contract.rate(optimizer, step), lambda batch: tensors.on_device(batch, device),
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


def lease_plan(spec: JobSpec, records: int, is_shuffled: bool, window_records: int) -> Plan:
    """Positions of all epochs; a step is one batch of one worker."""
    alone = spec.plan.model_copy(update={"global_batch_size": spec.plan.minibatch_size, "logical_ranks": 1})
    return plan_of(records, alone, spec.data, is_shuffled, window_records)


class State:
    """What a checkpoint has of the model besides its rows: the newest dense values, and statistics of this worker."""

    def __init__(self, model: nn.Module, callbacks: list[Callback]) -> None:
        self.model = model
        self.callbacks = callbacks
        self.step = 0
        self.progress = b""

    def capture(self) -> Image:
        image = images.capture(self.model, None, self.step, 0)
        image.meta["callbacks"] = [callback.state() for callback in self.callbacks]
        image.meta["progress"] = self.progress.decode()
        return image


class Layers:
    """The embedding layers of a model in training, and their tables at its end."""

    def __init__(self, attached: AttachedLayers, lookups: Lookups, clients: Clients) -> None:
        self._attached = attached
        self._lookups = lookups
        self._clients = clients
        self._foresight = attached.foresight()
        source = Trained(lookups)
        source.creates = True
        attached.attach(source)

    def begin(self, features: Any) -> None:
        self._foresight.begin(features)

    def foresee(self, features: Any) -> Mapping[str, list[Ids]]:
        return self._foresight.ids(features)

    def shards(self, checkpoint: Place | None = None) -> Callable[[Path], Program] | None:
        return self._clients.shards(checkpoint)

    def whole(self) -> AbstractContextManager[None]:
        return self._attached.whole(self._lookups.client, self._clients.rows)


def _prepare(
    line: Line, plan: Plan, attached: AttachedLayers, lookups: Lookups, layout: Layout, trainee: Trainee,
    first: Image | None, validation_records: int, callbacks: Sequence[Callback],
) -> None:  # fmt: skip
    """Rows came back with the ps where there is a checkpoint; what is not among them begins as the model was built."""
    attached.put(lookups.client)
    lookups.client.put(dense.NAME, layout.ids, layout.pack(trainee.variables()))
    progress = (
        str(first.meta.get("progress", "")).encode() if first is not None and line.spec.checkpoint.resume else b""
    )
    watching = next((callback for callback in callbacks if isinstance(callback, BestMetric)), None)
    line.link.planned(
        plan.total_steps, plan.total_records, plan.records_per_epoch, plan.steps_per_epoch, validation_records,
        watching.metric if watching else "", best_is_least=watching is not None and watching.mode == "min",
        progress=progress,
    )  # fmt: skip


def _saving(
    line: Line, plan: Plan, state: State, clients: Clients, files: Mapping[str, bytes]
) -> Callable[[int, bytes, bool], None]:
    spec = line.spec
    directory = line.link.directory.checkpoints(spec)
    extra = described(spec, plan, run_of(line))
    saver = Saver(
        state, clients.begin_cut, line.link, directory, spec.checkpoint.keep, extra,
        one_at_a_time=True, retry_s=spec.checkpoint.retry_s, is_on=spec.keeps_checkpoints, files=files,
    )  # fmt: skip

    def save(step: int, progress: bytes, wait: bool) -> None:
        state.step, state.progress = step, progress
        (saver.finish if wait else saver.save)()

    return save


def _on_gradients(model: nn.Module, callbacks: Sequence[Callback], step: int) -> None:
    for callback in callbacks:
        callback.on_gradients(model, step)


def _stop(master: MasterClient, why: str) -> None:
    master.stop(at_once=False, reason=why)
