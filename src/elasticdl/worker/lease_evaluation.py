"""Evaluation in the lease modes: shards of validation data with the values of the moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import torch
from torch import nn

from elasticdl.data.mode import Mode
from elasticdl.embedding.source import Looked
from elasticdl.model.compiled import make_eager
from elasticdl.model.contract import Contract
from elasticdl.model.evaluation import evaluate_batches
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.worker.assembly import Line
from elasticdl.worker.hybrid import AttachedLayers, Clients
from elasticdl.worker.lease_line import Part
from elasticdl.worker.train import dataset_of


class Trained(Protocol):
    model: nn.Module


class LeaseEvaluation:
    """A second model, which looks rows up and makes none; it takes dense values and statistics from the first."""

    def __init__(
        self, line: Line, contract: Contract, trained: Trained, attached: AttachedLayers, clients: Clients,
        device: torch.device,
    ) -> None:  # fmt: skip
        self._minibatch = line.spec.plan.minibatch_size
        self._trained = trained
        self._device = device
        self.records = 0
        if not line.spec.data.validation:
            return
        self._dataset = dataset_of(line, contract, line.spec.data.validation, "validation", Mode.EVALUATION)
        self.records = len(self._dataset.source)
        self._metrics = contract.metrics()
        self._model = make_eager(contract.build_model()).to(device)
        client = clients.open()
        client.declare(attached.specs)
        attached.like(self._model).attach(Looked(client))

    def run(self, lease: pb.Lease) -> Iterator[tuple[int, Mapping[str, Part]]]:
        self._model.load_state_dict(self._trained.model.state_dict())
        first = lease.start + lease.done
        yield from evaluate_batches(
            self._model, self._metrics, self._dataset, first, lease.stop, self._minibatch, self._device
        )
