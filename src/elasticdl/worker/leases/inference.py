"""Evaluation and prediction jobs: workers lease shards, and each result counts exactly once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import count

import torch

from elasticdl.checkpoint.captured_state import restore_state
from elasticdl.checkpoint.export import find_weights
from elasticdl.data.column_names import check_id_column
from elasticdl.data.dataset import Dataset, Mode
from elasticdl.errors import SpecError
from elasticdl.model import reduction
from elasticdl.model.compiled import make_eager
from elasticdl.model.contract import Contract
from elasticdl.model.evaluation import evaluate_batches, predict_records
from elasticdl.model.reduction import MetricPart
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.client import MasterClient
from elasticdl.spec import BadRows, JobKind
from elasticdl.storage.paths import parse_path
from elasticdl.worker.context import WorkerContext
from elasticdl.worker.embeddings.tables import restore_rows
from elasticdl.worker.leases.prediction_file import PredictionFile
from elasticdl.worker.leases.runner import LeaseRunner, RunLease
from elasticdl.worker.train import open_contract, open_dataset

_log = logging.getLogger(__name__)


def run_inference(context: WorkerContext) -> str:
    """Work on leases until none are left; returns the exit reason."""
    spec = context.spec
    contract, device = open_contract(context)
    if not spec.checkpoint.init_from:
        raise SpecError("checkpoint.init_from: expected a trained model; give --checkpoint_dir_for_init=PATH")
    evaluates = spec.kind is JobKind.EVALUATION
    uri, name = (spec.data.validation, "validation") if evaluates else (spec.data.prediction, "prediction")
    dataset = open_dataset(context, contract, uri, name, Mode.EVALUATION if evaluates else Mode.PREDICTION)
    model = make_eager(contract.build_model())
    captured = restore_rows(model, *find_weights(parse_path(spec.checkpoint.init_from, spec.timing.store_retry_s)))
    restore_state(captured, model.to(device), None)
    context.master.report_plan(pb.DataPlan(total_steps=captured.step, total_records=len(dataset.source)))
    context.master.report_ready()
    run = (
        _make_evaluation(context, contract, model, dataset, device)
        if evaluates
        else _make_prediction(context, contract, model, dataset, device)
    )
    with MasterClient.connect(
        context.master.directory, spec.timing.rpc_timeout_s, context.env.run, context.master.worker
    ) as master:
        LeaseRunner(master, context.master.worker, count(1)).run_leases(run, (), _make_wait(context))
    while not context.master.is_released and not context.master.is_leaving:
        context.master.wait_for_message(spec.timing.heartbeat_interval_s)
    return "no shards are left"


def _make_wait(context: WorkerContext) -> Callable[[], bool]:
    def wait() -> bool:
        context.master.wait_for_message(context.spec.timing.heartbeat_interval_s)
        return not (context.master.is_released or context.master.is_leaving)

    return wait


def _make_evaluation(
    context: WorkerContext, contract: Contract, model: torch.nn.Module, dataset: Dataset, device: torch.device
) -> RunLease:
    metrics = contract.make_metrics()
    minibatch = context.spec.plan.minibatch_size

    def run(lease: pb.Lease) -> Iterator[tuple[int, Mapping[str, MetricPart]]]:
        yield from evaluate_batches(model, metrics, dataset, lease.start + lease.done, lease.stop, minibatch, device)

    return run


def _make_prediction(
    context: WorkerContext, contract: Contract, model: torch.nn.Module, dataset: Dataset, device: torch.device
) -> RunLease:
    processor = contract.make_processor()
    options = context.spec.prediction
    marks, tolerates = options.bad_rows is BadRows.MARK, options.bad_rows is not BadRows.ERROR
    if processor is not None and (marks or options.id_column):
        raise SpecError(
            "prediction: --id_column and --bad_rows=mark are of predictions on disk, and the model file has a "
            "PredictionOutputsProcessor; leave out the options or the processor"
        )
    if options.id_column:
        check_id_column(options.id_column, dataset.source.columns)
    spec = context.spec
    minibatch = spec.plan.minibatch_size
    output = (
        parse_path(spec.output, spec.timing.store_retry_s)
        if spec.output
        else context.master.directory.root / "predictions"
    )

    def run(lease: pb.Lease) -> Iterator[tuple[int, Mapping[str, MetricPart]]]:
        # A shard's file appears whole or not at all; a worker that takes the shard again writes the same.
        file = PredictionFile(output, lease.shard, dataset.source, options.id_column, marks_bad_rows=marks)
        bad = 0
        for predicted in predict_records(
            model, dataset, lease.start, lease.stop, minibatch, device, tolerates_bad_rows=tolerates
        ):
            if predicted.predictions is not None:
                if processor is not None:
                    processor.process(predicted.predictions, context.master.worker)
                else:
                    file.add_predictions(predicted.records, predicted.predictions)
            for record, reason in predicted.bad.items():
                _log.warning("record %d is bad, %s: %s", record, "marked" if marks else "skipped", reason)
            bad += len(predicted.bad)
            if marks:
                file.add_bad_rows(predicted.bad)
            if predicted.past < lease.stop:
                yield lease.start, {}
        if processor is None:
            file.write()
        # Counted with the whole shard: a worker that takes it again counts its rows again.
        counted = {reduction.metric_key(reduction.BAD_ROWS, "total"): ([float(bad)], float(lease.stop - lease.start))}
        yield lease.stop, counted if tolerates else {}

    return run
