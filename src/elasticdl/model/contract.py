"""The model file at work: imported, checked once more as living functions, and called in one place."""

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
from typing import Any, ClassVar, TypeVar

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


@dataclass(frozen=True)
class Contract:
    """The functions of one model file. Whatever is wrong with what they return is a ModelError naming them."""

    location: ModelFileLocation
    module: ModuleType
    model_params: dict[str, Any]
    optimizer_params: dict[str, Any]
    framework: ClassVar[Framework] = Framework.TORCH

    def build_model(self) -> nn.Module:
        """A new module; its weights come from torch's random numbers, so seed those first."""
        term = functions.model_function(self.location.function, self.framework)
        built = self._call(term, **self.model_params)
        self._check_one(term, built, nn.Module, "models")
        if isinstance(built, nn.ModuleList | nn.ModuleDict):
            raise ModelError(f"{self.location.file}: {term.name} {functions.several_returned_problem('models')}")
        if not isinstance(built, nn.Module):
            raise self._make_error(term, built)
        return built

    def build_optimizer(self, module: nn.Module, lr: float | None = None) -> torch.optim.Optimizer:
        """The optimizer of `module`. `lr` is the job's learning rate; without it learning_rate(0) or its default."""
        built = self._call(functions.OPTIMIZER, list(module.parameters()), **self._optimizer_keywords(lr))
        self._check_one(functions.OPTIMIZER, built, torch.optim.Optimizer, "optimizers")
        if not isinstance(built, torch.optim.Optimizer):
            raise self._make_error(functions.OPTIMIZER, built)
        return built

    def _check_one(self, term: ContractFunction, built: object, kind: type, what: str) -> None:
        """Raise ModelError where `built` holds some of `kind` and is none itself."""
        parts = built.values() if isinstance(built, dict) else built if isinstance(built, list | tuple) else ()
        if any(isinstance(part, kind) for part in parts):
            raise ModelError(f"{self.location.file}: {term.name} {functions.several_returned_problem(what)}")

    def _optimizer_keywords(self, lr: float | None) -> dict[str, Any]:
        params = dict(self.optimizer_params)
        term = functions.optimizer_function(self.framework)
        found = source.signature_from_callable(self._get_function(term))
        takes_lr = found is None or found.any_keyword or "lr" in found.names(len(term.arguments))
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
        """Write `module` for others; `sample` are the features of a batch."""
        exports.export_model(module, sample, target, extra, self.model_files())

    def model_files(self) -> dict[str, bytes]:
        """What lies beside the model in checkpoints and exports, by file name."""
        found = self._call(functions.MODEL_FILES) if self.has_function(functions.MODEL_FILES) else {}
        is_named = isinstance(found, dict) and all(isinstance(name, str) and name == Path(name).name for name in found)
        if not is_named or not all(isinstance(content, bytes) for content in found.values()):
            raise self._make_error(functions.MODEL_FILES, found)
        if taken := sorted(set(found) & exports.OWN_FILES):
            raise self._make_error(functions.MODEL_FILES, f"{taken[0]}, which is a file of the export itself")
        return dict(found)

    def make_trainable(
        self, module: nn.Module, optimizer: torch.optim.Optimizer, on_gradients: Callable[[], None]
    ) -> TorchTrainable:
        """The model as the lease modes train it."""
        return TorchTrainable(module, optimizer, partial(self.batch_loss, module), on_gradients)

    def rate_after(self, optimizer: torch.optim.Optimizer, step: int) -> float:
        """The learning rate after so many updates, whoever applied them."""
        scheduled = self.learning_rate(step)
        return float(optimizer.param_groups[0]["lr"]) if scheduled is None else scheduled

    def learning_rate(self, step: int) -> float | None:
        """The rate of step `step`, or None where the file leaves it to the optimizer."""
        if not self.has_function(functions.LEARNING_RATE):
            return None
        rate = self._call(functions.LEARNING_RATE, step)
        if isinstance(rate, bool) or not isinstance(rate, int | float):
            raise self._make_error(functions.LEARNING_RATE, rate)
        return float(rate)

    def make_dataset(self, source: RecordSource, mode: Mode) -> Dataset:
        """What dataset_fn makes of the records of `source`; its batches stack into tensors."""
        plain = Dataset(source, mode, stack=tensors.stack_values)
        built = self._call(functions.DATASET, plain, mode, plain.metadata)
        if not isinstance(built, Dataset):
            raise self._make_error(functions.DATASET, built)
        return built

    def make_metrics(self) -> dict[str, Metric]:
        """What to measure in an evaluation, by name; always the loss too, where there is one."""
        metrics: dict[str, Metric] = {}
        if self.has_function(functions.LOSS):
            metrics[LOSS_METRIC] = self._make_metric(LOSS_METRIC, self.loss)
        found = self._call(functions.METRICS) if self.has_function(functions.METRICS) else {}
        if not isinstance(found, dict):
            raise self._make_error(functions.METRICS, found)
        for name, metric in self._flatten_metrics(found).items():
            if not isinstance(name, str) or not name or reduction.SEPARATOR in name:
                raise self._make_error(
                    functions.METRICS, f"{name!r} as a name: use text without {reduction.SEPARATOR!r}"
                )
            metrics[name] = self._make_metric(name, metric)
        return metrics

    def make_callbacks(self, steps_per_epoch: int = 1) -> list[Callback]:
        found = self._call(functions.CALLBACKS) if self.has_function(functions.CALLBACKS) else []
        if not isinstance(found, list | tuple) or not all(isinstance(callback, Callback) for callback in found):
            raise self._make_error(functions.CALLBACKS, found)
        return list(found)

    def make_processor(self) -> Any | None:
        """A new PredictionOutputsProcessor, or None where the file has none."""
        if not self.has_function(functions.PROCESSOR):
            return None
        built = self._call(functions.PROCESSOR)
        if not callable(getattr(built, "process", None)):
            raise self._make_error(functions.PROCESSOR, built)
        return built

    def make_reader(self, data_path: str, reader_params: dict[str, Any]) -> RecordSource | None:
        """What custom_data_reader makes of `data_path`, or None where ElasticDL's own readers are used."""
        if not self.has_function(functions.READER):
            if reader_params:
                raise SpecError(functions.unused_reader_params_problem(reader_params))
            return None
        return mapped.as_source(self._call(functions.READER, data_path, **reader_params), data_path)

    def has_function(self, term: ContractFunction) -> bool:
        return hasattr(self.module, term.name)

    def _flatten_metrics(self, found: dict[str, Any]) -> dict[str, Any]:
        """The metrics by one name each."""
        return found

    def _make_metric(self, name: str, metric: object) -> Metric:
        if isinstance(metric, Metric) and not isinstance(metric, type):
            if metric.reduction not in reduction.REDUCTIONS:
                known = ", ".join(reduction.REDUCTIONS)
                raise self._make_error(
                    functions.METRICS, f"{name} with reduction {metric.reduction!r}; known are {known}"
                )
            return metric
        if callable(metric) and not isinstance(metric, type):
            return BatchMean(name, metric)
        raise self._make_error(functions.METRICS, {name: metric})

    def _get_function(self, term: ContractFunction) -> Callable[..., Any]:
        try:
            function: Callable[..., Any] = getattr(self.module, term.name)
        except AttributeError:
            raise ModelError(
                f"{self.location.file}: {term.name}: expected {term.expected}; found no such function"
            ) from None
        return function

    def _call(self, term: ContractFunction, *arguments: Any, **keywords: Any) -> Any:
        try:
            return self._get_function(term)(*arguments, **keywords)
        except ElasticDLError:
            raise
        except Exception as exc:
            raise ModelError(
                f"{self.location.file}: {term.name} failed: {format_exception(exc, self.location.file)}"
            ) from exc

    def _make_error(self, term: ContractFunction, received: object) -> ModelError:
        shown = tensors.describe_structure(received) if isinstance(received, Tensor) else repr(received)
        return ModelError(f"{self.location.file}: {term.name}: expected {term.expected}. Received: {shown[:200]}")


def load_contract(model: ModelSpec, kind: JobKind) -> Contract:
    """Import the model file of a torch job and check all its functions; one ModelError tells all problems."""
    return load_contract_as(Contract, model, kind)


def load_contract_as(contract: type[AnyContract], model: ModelSpec, kind: JobKind) -> AnyContract:
    """As `load`, for the contract of any framework."""
    framework = contract.framework
    place = definition.locate_model_file(model)
    module = import_model_file(place)
    model_term = functions.model_function(place.function, framework)
    problems = [
        problem
        for term in (model_term, *functions.FUNCTIONS[framework])
        for problem in _find_problems(term, kind, getattr(module, term.name, None))
    ]
    if kind is JobKind.EVALUATION and not (
        hasattr(module, functions.LOSS.name) or hasattr(module, functions.METRICS.name)
    ):
        problems.append(
            f"nothing to evaluate: expected {functions.METRICS.expected} or {functions.LOSS.expected}; found neither"
        )
    if problems:
        raise definition.make_contract_error(place.file, problems)
    of_model = source.signature_from_callable(getattr(module, place.function))
    of_optimizer = _living_signature(getattr(module, functions.OPTIMIZER.name, None))
    to_model, to_optimizer, unknown = functions.split_params(model.params, of_model, of_optimizer, framework)
    problems = [functions.unknown_param_problem(key, of_model, of_optimizer, framework) for key in unknown]
    if of_model and (problem := functions.keyword_problem(model_term, of_model, to_model, "--model_params")):
        problems.append(f"{place.function}({of_model.text}) {problem}")
    if problems:
        raise definition.make_contract_error(place.file, problems)
    return contract(place, module, to_model, to_optimizer)


def _find_problems(term: ContractFunction, kind: JobKind, function: object) -> list[str]:
    if function is None:
        return [f"{term.name}: expected {term.expected}; found none"] if kind in term.needed_by else []
    if not callable(function):
        return [f"{term.name}: expected {term.expected}; found {type(function).__name__}, which cannot be called"]
    found = _living_signature(function)
    if found is not None and (problem := functions.signature_problem(term, found)):
        return [f"{term.name}: expected {term.expected}; found {term.name}({found.text}), which {problem}"]
    return []


def _living_signature(function: object) -> Signature | None:
    # An nn.Module is called through *args; its forward says what it takes.
    living = function.forward if isinstance(function, nn.Module) else function
    return source.signature_from_callable(living) if callable(living) else None


def import_model_file(definition: ModelFileLocation) -> ModuleType:
    """The module of the model file; whatever it raises becomes a ModelError that names the line.

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
    """An exception in one line, with the last line of `file` it passed through."""
    lines = [frame.lineno for frame in traceback.extract_tb(exc.__traceback__) if frame.filename == str(file)]
    where = f" (line {lines[-1]})" if lines else ""
    return f"{type(exc).__name__}: {exc}{where}"
