"""A torch model in the lease modes: the whole job of a worker, in the order it happens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from elasticdl.data.mode import Mode
from elasticdl.data.plan import Plan, plan_of
from elasticdl.embedding import rule
from elasticdl.embedding.attached import Attached
from elasticdl.embedding.foresight import Foresight
from elasticdl.embedding.source import Looked, Trained
from elasticdl.model import tensors
from elasticdl.model.contract import Contract
from elasticdl.model.evaluation import evaluate_batches
from elasticdl.model.torch_trainee import TorchTrainee
from elasticdl.ps import dense
from elasticdl.ps.dense import Layout
from elasticdl.ps.lookups import Lookups
from elasticdl.ps.wire import Ids
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.client import MasterClient
from elasticdl.spec import JobSpec, PsMode
from elasticdl.testing.faults import Faults
from elasticdl.worker.assembly import Line
from elasticdl.worker.hybrid import Clients
from elasticdl.worker.lease_feed import LeaseFeed
from elasticdl.worker.lease_line import LeaseLine, Part
from elasticdl.worker.lease_training import Deeds, LeaseTraining
from elasticdl.worker.train import open_contract, source_of
from elasticdl.worker.training import seed_everything


class Layers:
    """The embedding layers of a torch model."""

    def __init__(self, attached: Attached, lookups: Lookups) -> None:
        self._foresight = Foresight(attached.layers)
        source = Trained(lookups)
        source.creates = True
        attached.attach(source)

    def begin(self, features: Any) -> None:
        self._foresight.begin(features)

    def foresee(self, features: Any) -> Mapping[str, list[Ids]]:
        return self._foresight.ids(features)


def train_by_leases(line: Line) -> str:
    """Train until the data is drained, the job is stopped, or this worker has left; returns the word of farewell."""
    spec = line.spec
    contract, device = open_contract(line)
    dataset = contract.dataset(source_of(line, contract, spec.data.training, "training"), Mode.TRAINING)
    plan = lease_plan(spec, len(dataset.source), dataset.is_shuffled, dataset.window_records)
    seed_everything(spec.plan.seed)
    model = contract.build_model().to(device)
    optimizer = contract.build_optimizer(model, spec.plan.learning_rate)
    attached = Attached(model, spec.ps.embeddings, spec.ps.embedding_bytes)
    attached.leave(optimizer)
    trainee = TorchTrainee(model, optimizer, contract.loss)
    layout = Layout.of(trainee.variables())
    clients = Clients(spec, line.link)
    lookups = Lookups(clients.open(), 0 if spec.ps.mode is PsMode.SYNC else spec.ps.depth)
    lookups.declare([*attached.specs, layout.table(rule.of(optimizer))])
    model.train()

    def prepare() -> None:
        attached.put(lookups.client)
        lookups.client.put(dense.NAME, layout.ids, layout.pack(trainee.variables()))
        line.link.planned(
            plan.total_steps, plan.total_records, plan.records_per_epoch, plan.steps_per_epoch, evaluation.records
        )

    def save(step: int, progress: bytes) -> None:
        pass

    def rate(step: int) -> float:
        scheduled = contract.learning_rate(step)
        return float(optimizer.param_groups[0]["lr"]) if scheduled is None else scheduled

    evaluation = Evaluation(line, contract, model, attached, clients, device)
    with MasterClient.connect(line.link.directory, spec.timing.rpc_s) as master:
        leases = LeaseLine(master, line.link.worker, spec.timing.heartbeat_s)
        feed = LeaseFeed(dataset, plan, spec.plan.minibatch_size)
        training = LeaseTraining(
            spec, line.link, leases, feed, trainee, Layers(attached, lookups), lookups,
            Deeds(prepare, evaluation.run, save, lambda path: None), rate,
            lambda batch: tensors.on_device(batch, device), Faults.parse(line.env.faults, line.env.worker),
        )  # fmt: skip
        farewell = training.run()
        leases.close()
    feed.close()
    return farewell


def lease_plan(spec: JobSpec, records: int, is_shuffled: bool, window_records: int) -> Plan:
    """Positions of all epochs; a step is one batch of one worker."""
    alone = spec.plan.model_copy(update={"global_batch_size": spec.plan.minibatch_size, "logical_ranks": 1})
    return plan_of(records, alone, spec.data, is_shuffled, window_records)


class Evaluation:
    """Shards of validation data, with the values of the moment: a second model that makes no rows."""

    def __init__(
        self, line: Line, contract: Contract, model: nn.Module, attached: Attached, clients: Clients,
        device: torch.device,
    ) -> None:  # fmt: skip
        self._minibatch = line.spec.plan.minibatch_size
        self._trained = model
        self._device = device
        self.records = 0
        if not line.spec.data.validation:
            return
        source = source_of(line, contract, line.spec.data.validation, "validation")
        self._dataset = contract.dataset(source, Mode.EVALUATION)
        self.records = len(self._dataset.source)
        self._metrics = contract.metrics()
        self._model = contract.build_model().to(device)
        other = attached.like(self._model)
        client = clients.open()
        client.declare(attached.specs)
        other.attach(Looked(client))

    def run(self, lease: pb.Lease) -> Iterator[tuple[int, Mapping[str, Part]]]:
        self._model.load_state_dict(self._trained.state_dict())
        first = lease.start + lease.done
        yield from evaluate_batches(
            self._model, self._metrics, self._dataset, first, lease.stop, self._minibatch, self._device
        )
