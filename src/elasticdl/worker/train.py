"""Training from a model file: the whole job of a worker, in the order it happens."""

from __future__ import annotations

from dataclasses import replace

import torch

from elasticdl.data.dataset import Batch, Dataset
from elasticdl.data.interface import Indices, RecordSource
from elasticdl.data.mode import Mode
from elasticdl.data.open import open_source
from elasticdl.data.plan import plan_of
from elasticdl.data.skipping import BadRecords
from elasticdl.errors import DataUnavailable, ElasticDLError, LossNotFinite, PermanentError, SpecError, is_wrong_job
from elasticdl.model import tensors
from elasticdl.model.compiled import check_compiles_parts, make_eager, original
from elasticdl.model.contract import Contract
from elasticdl.storage.place import open_place
from elasticdl.worker import exporting
from elasticdl.worker.assembly import Line, assemble, device_of, is_due, run_of
from elasticdl.worker.ending import fail, finish, give_up, keep_before_crash
from elasticdl.worker.engine import Engine
from elasticdl.worker.evaluator import Evaluator
from elasticdl.worker.framework import load_contract
from elasticdl.worker.model_loop import ModelLoop
from elasticdl.worker.step import Step
from elasticdl.worker.tables import NoTables, open_tables
from elasticdl.worker.training import fix_numerics, seed_everything
from elasticdl.worker.warm_up import warm_up_model


def train(line: Line) -> str:
    """Train until the plan is done, the job is stopped, or this worker has left; returns the word of farewell."""
    spec = line.spec
    if spec.trains_by_leases:
        from elasticdl.worker.train_by_leases import train_by_leases  # needs the native core

        return train_by_leases(line)
    contract, device = open_contract(line)
    dataset = dataset_of(line, contract, spec.data.training, "training", Mode.TRAINING)
    plan = plan_of(len(dataset.source), spec.plan, spec.data, dataset.is_shuffled, dataset.window_records)
    seed_everything(spec.plan.seed)
    built = contract.build_model().to(device)
    model = original(built)  # whose names have no prefix, where the file has compiled it
    optimizer = contract.build_optimizer(model, spec.plan.learning_rate)
    tables = open_tables(spec, line.link, model, optimizer, lambda step: is_due(spec, step) or step >= plan.total_steps)
    evaluator = _evaluator(line, contract, tables, device)
    loop = ModelLoop(contract, built, spec.plan, device)
    loop.check(optimizer)
    if tables.has_rows:
        check_compiles_parts(built)
    built.train()
    warm_up_model(
        model,
        plan,
        lambda step, rank: _sample(dataset, plan.slice_of(step, rank), device),
        lambda batch: (micro.loss for micro in loop.micro_batches(batch.features, batch.labels)),
    )
    assembly = assemble(
        line, model, [optimizer], dataset, plan, user_state=loop.user_state,
        callbacks=contract.callbacks(plan.steps_per_epoch), learning_rate=contract.learning_rate, evaluator=evaluator,
        tables=tables,
        device=device,
        files=contract.model_files(),
    )  # fmt: skip
    engine = assembly.engine
    line.link.ready()
    try:
        for step in engine.steps():
            _compute(loop, engine, step)
            loop.update(optimizer, is_explicit=engine.training.is_explicit)
    except LossNotFinite as exc:
        give_up(line, assembly, exc)
        return "the loss is not finite"
    except Exception as exc:
        if isinstance(exc, DataUnavailable) or is_wrong_job(exc):
            fail(line, assembly, exc)
            return str(exc)
        if not isinstance(exc, PermanentError):
            keep_before_crash(line, assembly, exc)
        raise
    for callback in engine.training.callbacks:
        callback.on_train_end(model)
    farewell = finish(
        line,
        assembly,
        lambda path: exporting.export(
            open_place(path, spec.timing.store_s),
            line,
            contract,
            exporting.Trained(
                model, tables, engine.training.step, plan.records_until(engine.training.step), engine.training.callbacks
            ),
            dataset.good_batch(plan.slice_of(0, 0)),
            device,
        ),
    )
    assembly.feed.close()
    if evaluator is not None:
        evaluator.close()
    return farewell


def _compute(loop: ModelLoop, engine: Engine, step: Step) -> None:
    """All batches of a step; once again where the user's code failed, since that may have been a passing fault."""
    try:
        loop.compute(step)
    except ElasticDLError:
        raise
    except Exception as exc:
        engine.retry(step, exc)
        loop.compute(step)


def open_contract(line: Line) -> tuple[Contract, torch.device]:
    """The model file of the job, and the device it is to compute on."""
    spec = line.spec
    device = device_of(spec, line.env)
    fix_numerics(spec.workers.threads, device.type, spec.plan.reproducible)
    return load_contract(spec), device


def dataset_of(line: Line, contract: Contract, uri: str | None, name: str, mode: Mode) -> Dataset:
    """What dataset_fn makes of the data; bad records, as many as the job allows, are told to the master."""
    dataset = contract.dataset(source_of(line, contract, uri, name), mode)
    return replace(dataset, bad_records=BadRecords(line.spec.data.bad_records, line.link.bad_record))


def source_of(line: Line, contract: Contract, uri: str | None, name: str) -> RecordSource:
    data = line.spec.data
    custom = contract.reader(uri or "", dict(data.reader_params))
    if custom is not None:
        return custom
    if not uri:
        raise SpecError(f"data.{name}: expected where the {name} data lies; give --{name}_data")
    return open_source(uri, data, line.link.directory.index, run=run_of(line))


def _evaluator(line: Line, contract: Contract, tables: NoTables, device: torch.device) -> Evaluator | None:
    if not line.spec.data.validation:
        return None
    dataset = dataset_of(line, contract, line.spec.data.validation, "validation", Mode.EVALUATION)
    model = make_eager(contract.build_model()).to(device)
    tables.attach(model)
    return Evaluator(line.spec, line.link, model, contract.metrics(), dataset, device)


def _sample(dataset: Dataset, records: Indices, device: torch.device) -> Batch | None:
    batch = dataset.good_batch(records)
    return tensors.on_device(batch, device) if batch is not None else None
