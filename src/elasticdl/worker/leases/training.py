"""Training by leases: the whole model is on ps, and this worker trains one leased shard after another.

For each batch the worker pulls dense variables and rows, computes, and pushes gradients under the name of the batch.
Meanwhile it pulls what the next batch will look up, and the ps answer earlier pushes. A batch is reported as done once
its push is in the rows. A push that a ps finds stale is computed again under the same name. Knows no framework.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from elasticdl.data.dataset import Batch
from elasticdl.errors import DataUnavailable, LossNotFinite, PermanentError, SpecError, is_job_error
from elasticdl.faults import Faults
from elasticdl.model.callbacks import Callback
from elasticdl.model.reduction import MetricPart
from elasticdl.model.trainable import TrainableModel
from elasticdl.ps.client import dense
from elasticdl.ps.client.dense import DenseLayout
from elasticdl.ps.client.lookups import EmbeddingLookups, LookupResult
from elasticdl.ps.wire.messages import Ids
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import JobSpec, PsMode
from elasticdl.worker.leases.batches import LeaseBatch, LeaseFeed, LeaseProgress
from elasticdl.worker.leases.client import LeaseClient
from elasticdl.worker.master_connection import MasterConnection
from elasticdl.worker.model_export import ExportableTables

LOSS_KEY = "loss"  # of a report: the sum of the losses of its batches, weighted by records, and the records
_SMOOTHING = 0.1  # the share of the newest step in the smoothed step time


class BatchTables(ExportableTables, Protocol):
    """The embedding layers of the model."""

    def begin_batch(self, features: Any) -> None:
        """A batch with these features is about to be computed."""

    def predict_ids(self, features: Any) -> Mapping[str, list[Ids]]:
        """By table, the ids that a batch with these features will look up, as far as can be predicted."""


@dataclass(frozen=True)
class WorkerTasks:
    """The tasks of this worker besides training, on request of the master or when training ends."""

    prepare: Callable[[], None]  # make the first state, and report the plan
    evaluate: Callable[[pb.Lease], Iterator[tuple[int, Mapping[str, MetricPart]]]]
    save: Callable[[int, bytes, bool], None]  # (step, progress, waits): saves the state after this step
    export: Callable[[str], None]
    stop: Callable[[str], None]  # ask the master to stop the job
    end: Callable[[str], None]  # tell the master that the training is done, although data is left


@dataclass(frozen=True)
class LeaseModel:
    """The model in training, its variables and rows on the ps, and what the model file says about its training."""

    trainable: TrainableModel
    tables: BatchTables
    lookups: EmbeddingLookups
    layout: DenseLayout
    callbacks: Sequence[Callback]
    rate_after: Callable[[int], float]  # the learning rate after a number of updates
    move_batch: Callable[[Batch], Batch]  # brings a batch where the model computes


class LeaseTrainer:
    """Trains the batches of leased shards, and does the other tasks of the worker between them."""

    def __init__(
        self,
        spec: JobSpec,
        master: MasterConnection,
        leases: LeaseClient,
        feed: LeaseFeed,
        model: LeaseModel,
        tasks: WorkerTasks,
        faults: Faults,
    ) -> None:
        self._spec = spec
        self._master = master
        self._leases = leases
        self._feed = feed
        self._model = model
        self._lookups = model.lookups
        self._tasks = tasks
        self._is_stopped = False
        self._faults = faults
        self._ids = model.layout.block_ids
        self._dense: LookupResult | None = None
        self._progress = LeaseProgress(spec.plan.minibatch_size)
        self._again: deque[LeaseBatch] = deque()
        self._stale: list[LeaseBatch] = []  # those that were in `_again`
        self._early: tuple[LeaseBatch, Batch | None] | None = None
        self._aside: pb.Lease | None = None  # an evaluation that was leased while a batch was under way
        self._steps = 0
        self._records = 0
        self._epochs = 0
        self._losses: dict[tuple[int, int], tuple[float, int]] = {}  # by batch, until it is reported: weighted, records
        self._step_s = 0.0

    def run(self) -> str:
        """Train until no data is left, or this worker must stop or leave; returns the exit reason."""
        self._lookups.on_pushed = self._record_pushed
        self._master.add_message_listener(self._leases.wake)
        self._leases.start()
        self._master.report_ready()
        try:
            self._train_all()
        except DataUnavailable as exc:  # the whole model is on ps: it can be saved without the data
            self._lookups.discard_unsent()
            self._tasks.stop(str(exc))
            while not self._must_end():
                self._master.wait_for_message(self._spec.timing.heartbeat_interval_s)
        except (SpecError, PermanentError) as exc:  # the master stops all, and one worker saves what is on the ps
            if isinstance(exc, SpecError) and not is_job_error(exc):
                raise  # another worker may do better
            self._lookups.discard_unsent()
            self._master.report_failure(str(exc), wrong_job=isinstance(exc, SpecError), permanent=True)
            while not self._must_end():
                self._master.wait_for_message(self._spec.timing.heartbeat_interval_s)
        self._lookups.wait_for_pushes()
        self._leases.flush(self._spec.timing.rpc_timeout_s)
        return self._finish()

    def _train_all(self) -> None:
        work = self._next_batch(wait=True)
        while work is not None:
            started = time.monotonic()
            following = self._train_batch(work)
            took_s = time.monotonic() - started
            self._step_s = took_s if not self._step_s else self._step_s + _SMOOTHING * (took_s - self._step_s)
            work = following or self._next_batch(wait=True)

    # ---- the next batch

    def _next_batch(self, *, wait: bool) -> LeaseBatch | None:
        """The next batch to train. None: there are no more, or, without `wait`, none is leased yet."""
        while not self._must_end():
            if self._again:
                return self._again.popleft()
            if (work := self._feed.next_batch()) is not None:
                if work.is_last:
                    self._leases.request_lease()
                return work
            if wait:
                self._handle_requests()
            lease, self._aside = self._aside, None
            lease = lease or self._leases.wait_for_lease(self._spec.timing.heartbeat_interval_s if wait else 0.0)
            if lease is not None and lease.source != "training":
                if not wait:
                    self._aside = lease
                    return None
                self._evaluate(lease)
            elif lease is not None:
                self._feed.open_lease(lease)
            elif not wait:
                return None
            else:
                self._lookups.wait_for_pushes()  # others may wait for what this worker has not reported
                if self._leases.is_drained and not self._again:
                    return None
        return None

    def _must_end(self) -> bool:
        master = self._master
        return bool(master.stop_reason) or master.is_leaving or master.is_released or master.is_orphaned

    def _handle_requests(self) -> None:
        if self._master.must_prepare_state:
            self._master.must_prepare_state = False
            self._tasks.prepare()
        while (request := self._master.next_save()) is not None:
            self._refresh_dense()
            self._tasks.save(request.step, request.progress, False)
        while self._master.evaluation_results:
            step, metrics = self._master.evaluation_results.popleft()
            for callback in self._model.callbacks:
                callback.on_evaluation(step, metrics)
        if not self._is_stopped and (
            reason := next((c.stop_reason for c in self._model.callbacks if c.stop_reason), "")
        ):
            self._is_stopped = True
            self._tasks.end(reason)

    # ---- one batch

    def _train_batch(self, work: LeaseBatch) -> LeaseBatch | None:
        """Compute and push a batch; returns the next one if it is leased already."""
        batch = self._read_batch(work)
        if batch is None:
            self._report_done(work)
            return None
        is_again = work in self._stale
        if is_again:  # now with the newest values, and with no push of this worker under way that would make them old
            self._stale.remove(work)
            self._lookups.discard_unsent()
            self._lookups.wait_for_pushes()
        self._faults.inject(self._steps, "begin")
        self._lookups.begin_batch()
        self._model.tables.begin_batch(batch.features)
        if self._dense is None or self._steps % self._spec.ps.pull_every == 0:
            self._pull_dense()
        following = self._look_ahead() if self._spec.ps.pipeline_depth and not is_again else None
        loss, gradients = self._model.trainable.compute(batch.features, batch.labels)
        self._faults.inject(self._steps, "computed")
        if not math.isfinite(loss):
            raise LossNotFinite(f"the loss became {loss} in batch {work.start}:{work.stop} of the plan's records")
        self._losses[work.lease.id, work.batch_index] = (loss * batch.size, batch.size)
        rate = self._push_gradients(work, gradients)
        self._faults.inject(self._steps, "pushed")
        self._steps += 1
        self._records += batch.size
        self._master.record_lease_progress(self._lookups.clock, self._records, loss, self._step_s, rate)
        self._call_callbacks(work, loss)
        self._handle_requests()
        return following

    def _look_ahead(self) -> LeaseBatch | None:
        following = self._next_batch(wait=False)
        if following is None:
            return None
        batch = self._read_batch(following)
        self._early = (following, batch)
        ids_by_table: dict[str, Any] = dict(self._model.tables.predict_ids(batch.features)) if batch is not None else {}
        if (self._steps + 1) % self._spec.ps.pull_every == 0:
            ids_by_table[dense.DENSE_TABLE] = self._ids
        self._lookups.prefetch(ids_by_table)
        return following

    def _read_batch(self, work: LeaseBatch) -> Batch | None:
        if self._early is not None and self._early[0] is work:
            (_, batch), self._early = self._early, None
            return batch
        batch = self._feed.read_batch(work)
        return self._model.move_batch(batch) if batch is not None else None

    def _pull_dense(self) -> None:
        self._dense = self._lookups.lookup(dense.DENSE_TABLE, self._ids)
        self._set_dense(self._dense)

    def _refresh_dense(self) -> None:
        """Pull the newest dense values for an evaluation, a checkpoint or an export."""
        self._set_dense(self._lookups.lookup_latest(dense.DENSE_TABLE, self._ids))

    def _set_dense(self, lookup: LookupResult) -> None:
        self._model.trainable.set_variables(self._model.layout.unpack(lookup.rows[lookup.plan.inverse]))

    def _push_gradients(self, work: LeaseBatch, gradients: Mapping[str, Any]) -> float:
        """Send the gradients of a batch; returns the learning rate they are sent with."""
        assert self._dense is not None
        blocks = self._model.layout.pack(gradients)
        sums = np.empty_like(blocks)
        sums[self._dense.plan.inverse] = blocks
        self._lookups.add_gradients(dense.DENSE_TABLE, self._dense, sums)
        step = self._lookups.clock
        rate = self._model.rate_after(step) * math.prod(callback.rate_factor for callback in self._model.callbacks)
        self._progress.add_pushed(work)
        self._lookups.push_gradients(sender=work.sender, number=work.number, rate=rate, step=step + 1)
        if self._spec.ps.mode is PsMode.LOCAL:
            self._model.trainable.update(gradients, rate)
        return rate

    def _record_pushed(self, sender: int, number: int, is_stale: bool) -> None:
        work = self._progress.pop_pushed(sender, number)
        if is_stale:
            self._again.append(work)
            self._stale.append(work)
        else:
            self._report_done(work)

    def _report_done(self, work: LeaseBatch) -> None:
        if (progress := self._progress.record_done(work)) is None:
            return
        lease, done, works = progress
        losses = [self._losses.pop((lease.id, work.batch_index), (0.0, 0)) for work in works]
        total, records = sum(loss for loss, _ in losses), sum(count for _, count in losses)
        self._leases.report(lease, done, {LOSS_KEY: ([total], float(records))})

    # ---- other tasks

    def _call_callbacks(self, work: LeaseBatch, loss: float) -> None:
        """Tell the callbacks of steps and epochs as this worker sees them: others are elsewhere in the data."""
        epochs = work.stop // self._feed.plan.records_per_epoch
        for callback in self._model.callbacks:
            callback.on_step_end(self._steps - 1, loss)
            for epoch in range(self._epochs, epochs):
                callback.on_epoch_end(epoch)
        self._epochs = max(self._epochs, epochs)

    def _evaluate(self, lease: pb.Lease) -> None:
        self._lookups.wait_for_pushes()
        self._refresh_dense()
        for position, parts in self._tasks.evaluate(lease):
            self._leases.report(lease, position - lease.start, parts)

    def _finish(self) -> str:
        """The worker that the master asks writes the last checkpoint and the model; all wait until that is done."""
        master = self._master
        if master.is_leaving or master.is_released:
            return "left" if master.is_leaving else "released"
        if master.is_orphaned:
            return "the master is away for good"  # if it comes back, other workers train the rest
        reason = master.stop_reason
        master.report_finished(0, 0, reason)  # what is trained is known from the leases
        while not master.is_released and not master.is_orphaned:
            request = master.next_export()
            if request is None:
                master.wait_for_message(self._spec.timing.heartbeat_interval_s)
                continue
            self._refresh_dense()
            self._tasks.save(request.step, request.progress, True)
            if request.path:
                self._tasks.export(request.path)
            master.report_exported(request.path)
        return reason or "all records are trained"
