"""Evaluation during training, in the background, on a copy of exactly that step's weights."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import count

import torch
from torch import nn

from elasticdl import watchdog
from elasticdl.checkpoint.captured_state import CapturedState, restore_state
from elasticdl.data.dataset import Dataset
from elasticdl.data.plan import TrainingPlan
from elasticdl.errors import ElasticDLError
from elasticdl.model.evaluation import evaluate_batches
from elasticdl.model.metrics import Metric
from elasticdl.model.reduction import MetricPart
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.client import MasterClient
from elasticdl.spec import EvaluationSpec, JobSpec
from elasticdl.vital import VitalThread
from elasticdl.worker.leases.runner import LeaseRunner
from elasticdl.worker.master_connection import MasterConnection
from elasticdl.worker.training.state import TrainingState

_log = logging.getLogger(__name__)
_RETRY_S = 0.25  # before asking again for leases that others hold


def is_evaluation_due(step: int, plan: TrainingPlan, when: EvaluationSpec, before: int | None = None) -> bool:
    """Whether step `step` is evaluated: every N steps, every N epochs (each by default), and at the end.

    The update that led to `step` began with `before`; it crosses the end of no epoch.
    """
    if step == plan.total_steps:
        return True
    steps, epochs = when.every_steps, when.every_epochs or (0 if when.every_steps else 1)
    by_step = bool(steps) and step // steps > (step - 1 if before is None else before) // steps
    return by_step or (bool(epochs) and step % (epochs * plan.steps_per_epoch) == 0)


class Evaluator:
    """Holds the weights of the steps to evaluate, and works on their leases in a thread of its own."""

    def __init__(
        self,
        spec: JobSpec,
        master: MasterConnection,
        model: nn.Module,
        metrics: Mapping[str, Metric],
        dataset: Dataset,
        device: torch.device,
    ) -> None:
        self._spec = spec
        self._master = master
        self._model = model  # a second model: the first goes on training
        self._metrics = metrics
        self._dataset = dataset
        self._device = device
        self._held: dict[int, CapturedState] = {}
        self._started: deque[int] = deque()
        self._abandoned: set[int] = set()
        self._changed = threading.Condition()
        self._is_closed = False
        self._requests = count(1)
        self.records = len(dataset.source)

    def start(self) -> None:
        """Work on the evaluations that the master starts from here on."""
        self._master.add_evaluation_listener(self._add_step)
        VitalThread(self._run, name="elasticdl-evaluator").start()

    def after_step(self, training: TrainingState, plan: TrainingPlan) -> None:
        if is_evaluation_due(training.step, plan, self._spec.evaluation, training.update_start_step):
            self._held[training.step] = training.capture_weights()
            self._master.report_snapshot(training.step)
            if self._spec.evaluation.wait and training.step < plan.total_steps:
                with watchdog.pause_watchdog("waits for an evaluation"):
                    self._wait_for_result(training.step)

    def _wait_for_result(self, step: int) -> None:
        """Wait until the result is there, or cannot come any more."""
        master = self._master
        while not any(evaluated == step for evaluated, _ in master.evaluation_results) and step not in self._abandoned:
            if master.is_released or master.is_expelled or master.is_orphaned or master.stop_reason:
                return
            master.wait_for_message(self._spec.timing.heartbeat_interval_s)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _add_step(self, step: int) -> None:
        with self._changed:
            if step in self._held and step not in self._started:
                self._started.append(step)
            self._changed.notify_all()

    def _run(self) -> None:
        torch.set_num_threads(self._spec.workers.threads)
        master = self._master
        with MasterClient.connect(
            master.directory, self._spec.timing.rpc_timeout_s, master.run, master.worker
        ) as client:
            leases = LeaseRunner(client, master.worker, self._requests)
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._started or self._is_closed)
                    if self._is_closed:
                        return
                    step = self._started[0]
                restore_state(self._held[step], self._model, None)
                try:
                    leases.run_leases(self._evaluate, [step], self._pause)
                except ElasticDLError as exc:
                    _log.warning("evaluation of step %d ended here: %s", step, exc)
                    self._abandoned.add(step)
                with self._changed:
                    self._started.popleft()
                    del self._held[step]

    def _pause(self) -> bool:
        with self._changed:
            self._changed.wait(_RETRY_S)
            return not self._is_closed

    def _evaluate(self, lease: pb.Lease) -> Iterator[tuple[int, Mapping[str, MetricPart]]]:
        first = lease.start + lease.done
        minibatch = self._spec.plan.minibatch_size
        yield from evaluate_batches(
            self._model, self._metrics, self._dataset, first, lease.stop, minibatch, self._device
        )
