"""Evaluation and prediction jobs: shards by lease, results exactly once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import count

import torch

from elasticdl.checkpoint import captured_state as images
from elasticdl.checkpoint.export import find_weights
from elasticdl.data.column_names import check_id_column
from elasticdl.data.dataset import Dataset, Mode
from elasticdl.errors import SpecError
from elasticdl.model import reduction
from elasticdl.model.compiled import make_eager
from elasticdl.model.contract import Contract
from elasticdl.model.evaluation import evaluate_batches, predict_records
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.client import MasterClient
from elasticdl.spec import BadRows, JobKind
from elasticdl.storage.paths import parse_path
from elasticdl.worker.context import WorkerContext
from elasticdl.worker.embeddings.tables import restore_rows
from elasticdl.worker.leases.prediction_file import PredictionFile
from elasticdl.worker.leases.runner import LeaseRunner, MetricPart, RunLease
from elasticdl.worker.train import open_contract, open_dataset

_log = logging.getLogger(__name__)


def run_inference(line: WorkerContext) -> str:
    """Work on leases until there are none; returns the word of farewell."""
    spec = line.spec
    contract, device = open_contract(line)
    if not spec.checkpoint.initial:
        raise SpecError("checkpoint.initial: expected a trained model; give --checkpoint_dir_for_init=PATH")
    evaluates = spec.kind is JobKind.EVALUATION
    uri, name = (spec.data.validation, "validation") if evaluates else (spec.data.prediction, "prediction")
    dataset = open_dataset(line, contract, uri, name, Mode.EVALUATION if evaluates else Mode.PREDICTION)
    model = make_eager(contract.build_model())
    image = restore_rows(model, *find_weights(parse_path(spec.checkpoint.initial, spec.timing.store_s)))
    images.restore_state(image, model.to(device), None)
    line.master.report_plan(image.step, len(dataset.source), 0, 0)
    line.master.report_ready()
    run = (
        _make_evaluation(line, contract, model, dataset, device)
        if evaluates
        else _make_prediction(line, contract, model, dataset, device)
    )
    with MasterClient.connect(line.master.directory, spec.timing.rpc_s, line.env.run, line.master.worker) as master:
        LeaseRunner(master, line.master.worker, count(1)).run_leases(run, (), _make_wait(line))
    while not line.master.is_released and not line.master.is_leaving:
        line.master.wait_for_message(spec.timing.heartbeat_s)
    return "no shards are left"


def _make_wait(line: WorkerContext) -> Callable[[], bool]:
    def wait() -> bool:
        line.master.wait_for_message(line.spec.timing.heartbeat_s)
        return not (line.master.is_released or line.master.is_leaving)

    return wait


def _make_evaluation(
    line: WorkerContext, contract: Contract, model: torch.nn.Module, dataset: Dataset, device: torch.device
) -> RunLease:
    metrics = contract.make_metrics()
    minibatch = line.spec.plan.minibatch_size

    def run(lease: pb.Lease) -> Iterator[tuple[int, Mapping[str, MetricPart]]]:
        yield from evaluate_batches(model, metrics, dataset, lease.start + lease.done, lease.stop, minibatch, device)

    return run


def _make_prediction(
    line: WorkerContext, contract: Contract, model: torch.nn.Module, dataset: Dataset, device: torch.device
) -> RunLease:
    processor = contract.make_processor()
    asked = line.spec.prediction
    marks, tolerates = asked.bad_rows is BadRows.MARK, asked.bad_rows is not BadRows.ERROR
    if processor is not None and (marks or asked.id_column):
        raise SpecError(
            "prediction: --id_column and --bad_rows=mark are of predictions on disk, and the model file has a "
            "PredictionOutputsProcessor; leave out the options or the processor"
        )
    if asked.id_column:
        check_id_column(asked.id_column, dataset.source.columns)
    minibatch = line.spec.plan.minibatch_size
    spec = line.spec
    output = parse_path(spec.output, spec.timing.store_s) if spec.output else line.master.directory.root / "predictions"

    def run(lease: pb.Lease) -> Iterator[tuple[int, Mapping[str, MetricPart]]]:
        # A shard's file appears whole or not at all; whoever takes the shard again writes the same.
        file = PredictionFile(output, lease.shard, dataset.source, asked.id_column, marks_bad_rows=marks)
        bad = 0
        for predicted in predict_records(
            model, dataset, lease.start, lease.stop, minibatch, device, tolerates_bad_rows=tolerates
        ):
            if predicted.predictions is not None:
                if processor is not None:
                    processor.process(predicted.predictions, line.master.worker)
                else:
                    file.add_predictions(predicted.records, predicted.predictions)
            for record, why in predicted.bad.items():
                _log.warning("record %d is bad, %s: %s", record, "marked" if marks else "skipped", why)
            bad += len(predicted.bad)
            if marks:
                file.add_bad_rows(predicted.bad)
            if predicted.past < lease.stop:
                yield lease.start, {}
        if processor is None:
            file.write()
        # Counted with the whole shard: whoever takes it again counts its rows again.
        counted = {reduction.metric_key(reduction.BAD_ROWS, "total"): ([float(bad)], float(lease.stop - lease.start))}
        yield lease.stop, counted if tolerates else {}

    return run
