"""The contract of a model file: imports it, checks its functions, and calls them in one place."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from elasticdl.checkpoint import export as exports
from elasticdl.data.dataset import Dataset, Mode
from elasticdl.data.interface import RecordSource
from elasticdl.data.readers import mapped
from elasticdl.errors import ElasticDLError, ModelError, SpecError
from elasticdl.model import definition, functions, reduction, source, tensors
from elasticdl.model.callbacks import Callback
from elasticdl.model.definition import ModelFileLocation
from elasticdl.model.functions import ContractFunction
from elasticdl.model.metrics import BatchMean, Metric
from elasticdl.model.source import Framework, Signature
from elasticdl.model.trainable import TorchTrainable
from elasticdl.spec import JobKind, ModelSpec
from elasticdl.storage.paths import AnyPath

LOSS_METRIC = "loss"
AnyContract = TypeVar("AnyContract", bound="Contract")


@runtime_checkable
class PredictionOutputsProcessor(Protocol):
    """Takes the predictions of a job, batch by batch."""

    def process(self, predictions: Any, worker_id: str, /) -> Any: ...  # noqa: V107


@dataclass(frozen=True)
class Contract:
    """The functions of one model file. If one returns something wrong, a ModelError names it."""

    location: ModelFileLocation
    module: ModuleType
    model_params: dict[str, Any]
    optimizer_params: dict[str, Any]
    framework: ClassVar[Framework] = Framework.TORCH

    def build_model(self) -> nn.Module:
        """A new module; its weights come from torch's random numbers, so seed those first."""
        contract_function = functions.model_function(self.location.function, self.framework)
        built = self._call(contract_function, **self.model_params)
        self._check_one(contract_function, built, nn.Module, "models")
        if isinstance(built, nn.ModuleList | nn.ModuleDict):
            raise ModelError(
                f"{self.location.file}: {contract_function.name} {functions.several_returned_problem('models')}"
            )
        if not isinstance(built, nn.Module):
            raise self._make_error(contract_function, built)
        return built

    def build_optimizer(self, module: nn.Module, lr: float | None = None) -> torch.optim.Optimizer:
        """The optimizer of `module`. `lr` is the job's learning rate; without it learning_rate(0) or its default."""
        built = self._call(functions.OPTIMIZER, list(module.parameters()), **self._optimizer_keywords(lr))
        self._check_one(functions.OPTIMIZER, built, torch.optim.Optimizer, "optimizers")
        if not isinstance(built, torch.optim.Optimizer):
            raise self._make_error(functions.OPTIMIZER, built)
        return built

    def _check_one(self, contract_function: ContractFunction, built: object, kind: type, plural: str) -> None:
        """Raise ModelError if `built` is a collection that holds objects of `kind`."""
        parts = built.values() if isinstance(built, dict) else built if isinstance(built, list | tuple) else ()
        if any(isinstance(part, kind) for part in parts):
            raise ModelError(
                f"{self.location.file}: {contract_function.name} {functions.several_returned_problem(plural)}"
            )

    def _optimizer_keywords(self, lr: float | None) -> dict[str, Any]:
        params = dict(self.optimizer_params)
        contract_function = functions.optimizer_function(self.framework)
        signature = source.signature_from_callable(self._get_function(contract_function))
        takes_lr = (
            signature is None or signature.any_keyword or "lr" in signature.names(len(contract_function.arguments))
        )
        rate = lr if lr is not None else self.learning_rate(0)
        if rate is not None and takes_lr:
            params["lr"] = rate
        elif lr is not None:
            raise ModelError(
                f"{self.location.file}: optimizer does not take lr, so the learning rate {lr} would be ignored"
            )
        return params

    def batch_loss(self, module: nn.Module, features: Any, labels: Any) -> Tensor:
        """The mean loss of `module` on a batch it trains with, one number with a gradient."""
        return self.loss(labels, module(features))

    def loss(self, labels: Any, predictions: Any) -> Tensor:
        """The mean loss of a batch, one number with a gradient."""
        try:
            value = self._get_function(functions.LOSS)(labels, predictions)
        except Exception as exc:
            exc.add_note(
                f"in loss(labels, predictions) of {self.location.file}: "
                f"labels {tensors.describe_structure(labels)}, predictions {tensors.describe_structure(predictions)}"
            )
            raise
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise self._make_error(functions.LOSS, value)
        return value.reshape(())

    def export(self, module: nn.Module, sample: Any | None, target: AnyPath, extra: dict[str, Any]) -> None:
        """Export `module` to `target`; `sample` are the features of a batch."""
        exports.export_model(module, sample, target, extra, self.model_files())

    def model_files(self) -> dict[str, bytes]:
        """Files that are written beside the model in checkpoints and exports, by name."""
        files = self._call(functions.MODEL_FILES) if self.has_function(functions.MODEL_FILES) else {}
        is_named = isinstance(files, dict) and all(isinstance(name, str) and name == Path(name).name for name in files)
        if not is_named or not all(isinstance(content, bytes) for content in files.values()):
            raise self._make_error(functions.MODEL_FILES, files)
        if clashes := sorted(set(files) & exports.OWN_FILES):
            raise self._make_error(functions.MODEL_FILES, f"{clashes[0]}, which is a file of the export itself")
        return dict(files)

    def make_trainable(
        self, module: nn.Module, optimizer: torch.optim.Optimizer, on_gradients: Callable[[], None]
    ) -> TorchTrainable:
        """The model as the lease modes train it."""
        return TorchTrainable(module, optimizer, partial(self.batch_loss, module), on_gradients)

    def rate_after(self, optimizer: torch.optim.Optimizer, step: int) -> float:
        """The learning rate after `step` updates of all workers together."""
        scheduled = self.learning_rate(step)
        return float(optimizer.param_groups[0]["lr"]) if scheduled is None else scheduled

    def learning_rate(self, step: int) -> float | None:
        """The learning rate of step `step`; None if the file leaves it to the optimizer."""
        if not self.has_function(functions.LEARNING_RATE):
            return None
        rate = self._call(functions.LEARNING_RATE, step)
        if isinstance(rate, bool) or not isinstance(rate, int | float):
            raise self._make_error(functions.LEARNING_RATE, rate)
        return float(rate)

    def make_dataset(self, source: RecordSource, mode: Mode) -> Dataset:
        """The dataset that dataset_fn makes of the records of `source`; its batches are tensors."""
        plain = Dataset(source, mode, stack=tensors.stack_values)
        built = self._call(functions.DATASET, plain, mode, plain.metadata)
        if not isinstance(built, Dataset):
            raise self._make_error(functions.DATASET, built)
        return built

    def make_metrics(self) -> dict[str, Metric]:
        """The metrics of an evaluation, by name. The loss is always among them if there is one."""
        metrics: dict[str, Metric] = {}
        if self.has_function(functions.LOSS):
            metrics[LOSS_METRIC] = self._make_metric(LOSS_METRIC, self.loss)
        own = self._call(functions.METRICS) if self.has_function(functions.METRICS) else {}
        if not isinstance(own, dict):
            raise self._make_error(functions.METRICS, own)
        for name, metric in self._flatten_metrics(own).items():
            if not isinstance(name, str) or not name or reduction.SEPARATOR in name:
                raise self._make_error(
                    functions.METRICS, f"{name!r} as a name: use text without {reduction.SEPARATOR!r}"
                )
            metrics[name] = self._make_metric(name, metric)
        return metrics

    def make_callbacks(self, steps_per_epoch: int = 1) -> list[Callback]:
        callbacks = self._call(functions.CALLBACKS) if self.has_function(functions.CALLBACKS) else []
        if not isinstance(callbacks, list | tuple) or not all(isinstance(each, Callback) for each in callbacks):
            raise self._make_error(functions.CALLBACKS, callbacks)
        return list(callbacks)

    def make_processor(self) -> PredictionOutputsProcessor | None:
        """A new PredictionOutputsProcessor; None if the file has none."""
        if not self.has_function(functions.PROCESSOR):
            return None
        built = self._call(functions.PROCESSOR)
        if not isinstance(built, PredictionOutputsProcessor):
            raise self._make_error(functions.PROCESSOR, built)
        return built

    def make_reader(self, data_path: str, reader_params: dict[str, Any]) -> RecordSource | None:
        """The records that custom_data_reader makes of `data_path`; None if ElasticDL's own readers are used."""
        if not self.has_function(functions.READER):
            if reader_params:
                raise SpecError(functions.unused_reader_params_problem(reader_params))
            return None
        return mapped.as_source(self._call(functions.READER, data_path, **reader_params), data_path)

    def has_function(self, contract_function: ContractFunction) -> bool:
        return hasattr(self.module, contract_function.name)

    def _flatten_metrics(self, metrics: dict[str, Any]) -> dict[str, Any]:
        """The metrics with one name for each."""
        return metrics

    def _make_metric(self, name: str, metric: object) -> Metric:
        if isinstance(metric, Metric) and not isinstance(metric, type):
            if metric.reduction not in reduction.REDUCTIONS:
                names = ", ".join(reduction.REDUCTIONS)
                raise self._make_error(
                    functions.METRICS, f"{name} with reduction {metric.reduction!r}; expected one of {names}"
                )
            return metric
        if callable(metric) and not isinstance(metric, type):
            return BatchMean(name, metric)
        raise self._make_error(functions.METRICS, {name: metric})

    def _get_function(self, contract_function: ContractFunction) -> Callable[..., Any]:
        try:
            function: Callable[..., Any] = getattr(self.module, contract_function.name)
        except AttributeError:
            expected = f"{contract_function.name}: expected {contract_function.expected}"
            raise ModelError(f"{self.location.file}: {expected}; found no such function") from None
        return function

    def _call(self, contract_function: ContractFunction, *arguments: Any, **keywords: Any) -> Any:
        try:
            return self._get_function(contract_function)(*arguments, **keywords)
        except ElasticDLError:
            raise
        except Exception as exc:
            raise ModelError(
                f"{self.location.file}: {contract_function.name} failed: {format_exception(exc, self.location.file)}"
            ) from exc

    def _make_error(self, contract_function: ContractFunction, received: object) -> ModelError:
        shown = tensors.describe_structure(received) if isinstance(received, Tensor) else repr(received)
        expected = f"{contract_function.name}: expected {contract_function.expected}"
        return ModelError(f"{self.location.file}: {expected}. Received: {shown[:200]}")


def load_contract(model: ModelSpec, kind: JobKind) -> Contract:
    """Import the model file of a torch job and check all its functions; one ModelError names all problems."""
    return load_contract_as(Contract, model, kind)


def load_contract_as(contract: type[AnyContract], model: ModelSpec, kind: JobKind) -> AnyContract:
    """As `load_contract`, for the contract of any framework."""
    framework = contract.framework
    location = definition.locate_model_file(model)
    module = import_model_file(location)
    model_function = functions.model_function(location.function, framework)
    problems = [
        problem
        for contract_function in (model_function, *functions.FUNCTIONS[framework])
        for problem in _find_problems(contract_function, kind, getattr(module, contract_function.name, None))
    ]
    if kind is JobKind.EVALUATION and not (
        hasattr(module, functions.LOSS.name) or hasattr(module, functions.METRICS.name)
    ):
        problems.append(
            f"nothing to evaluate: expected {functions.METRICS.expected} or {functions.LOSS.expected}; found neither"
        )
    if problems:
        raise definition.make_contract_error(location.file, problems)
    model_signature = source.signature_from_callable(getattr(module, location.function))
    optimizer_signature = _signature_of_object(getattr(module, functions.OPTIMIZER.name, None))
    to_model, to_optimizer, unknown = functions.split_params(
        model.params, model_signature, optimizer_signature, framework
    )
    problems = [
        functions.unknown_param_problem(key, model_signature, optimizer_signature, framework) for key in unknown
    ]
    if model_signature and (
        problem := functions.keyword_problem(model_function, model_signature, to_model, "--model_params")
    ):
        problems.append(f"{location.function}({model_signature.text}) {problem}")
    if problems:
        raise definition.make_contract_error(location.file, problems)
    return contract(location, module, to_model, to_optimizer)


def _find_problems(contract_function: ContractFunction, kind: JobKind, function: object) -> list[str]:
    name, expected = contract_function.name, f"{contract_function.name}: expected {contract_function.expected}"
    if function is None:
        return [f"{expected}; found none"] if kind in contract_function.needed_by else []
    if not callable(function):
        return [f"{expected}; found {type(function).__name__}, which cannot be called"]
    signature = _signature_of_object(function)
    if signature is not None and (problem := functions.signature_problem(contract_function, signature)):
        return [f"{expected}; found {name}({signature.text}), which {problem}"]
    return []


def _signature_of_object(function: object) -> Signature | None:
    # An nn.Module is called through *args; its forward says what it takes.
    target = function.forward if isinstance(function, nn.Module) else function
    return source.signature_from_callable(target) if callable(target) else None


def import_model_file(definition: ModelFileLocation) -> ModuleType:
    """Import the model file. An exception it raises becomes a ModelError that names the line.

    The zoo and the file's own directory go to the end of `sys.path`: the file may import its neighbours, and a
    neighbour called `random.py` does not replace Python's.
    """
    for directory in (definition.file.parent, definition.zoo):
        if str(directory) not in sys.path:
            sys.path.append(str(directory))
    name = f"elasticdl_model_{hashlib.sha256(str(definition.file).encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, definition.file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and worker processes of a data loader look it up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as exc:
        del sys.modules[name]
        raise ModelError(f"{definition.file} cannot be imported: {format_exception(exc, definition.file)}") from exc
    return module


def format_exception(exc: BaseException, file: Path) -> str:
    """An exception in one line of text, with the last line of `file` that it passed through."""
    lines = [frame.lineno for frame in traceback.extract_tb(exc.__traceback__) if frame.filename == str(file)]
    where = f" (line {lines[-1]})" if lines else ""
    return f"{type(exc).__name__}: {exc}{where}"
