"""The functions of a Keras model file, whose results look to the engine like torch modules and optimizers."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from elasticdl.checkpoint import export as exports
from elasticdl.data.dataset import Dataset, Mode
from elasticdl.data.interface import RecordSource
from elasticdl.errors import ModelError
from elasticdl.keras import arrays
from elasticdl.keras.adapter import dataset as datasets
from elasticdl.keras.adapter import metrics, model_export
from elasticdl.keras.adapter.computation import ignore_structure_warnings
from elasticdl.keras.adapter.dataset import KerasDataset
from elasticdl.keras.adapter.module import KerasModule, KerasOptimizer
from elasticdl.keras.adapter.tensors import to_torch
from elasticdl.keras.arrays import ArrayDataset
from elasticdl.keras.callbacks import KerasCallbackAdapter, LearningRateScheduler
from elasticdl.keras.embeddings import attach, moving, placement
from elasticdl.keras.embeddings.layers import Embedding
from elasticdl.keras.embeddings.placement import IN_MODEL, EmbeddingPlacement
from elasticdl.keras.runtime import keras, tf
from elasticdl.model import contract as contracts
from elasticdl.model import functions
from elasticdl.model.callbacks import Callback
from elasticdl.model.contract import Contract
from elasticdl.model.metrics import BatchMean, Metric
from elasticdl.model.source import Framework
from elasticdl.model.trainable import NamedArrays, TorchTrainable
from elasticdl.spec import JobKind, ModelSpec
from elasticdl.storage.paths import AnyPath

SERVED_METHOD = "served"  # a method of a model: what is exported in its place, and the specs of the features that takes

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KerasContract(Contract):
    """As Contract, for Keras. `dataset` comes before `build_model`: it shows what the features are."""

    specs: dict[Mode, tuple[Any, Any]] = field(default_factory=dict)
    placement: EmbeddingPlacement = IN_MODEL
    framework: ClassVar[Framework] = Framework.KERAS

    def build_model(self) -> KerasModule:
        """A new model; its weights come from Python's random numbers, so seed those first."""
        return self._build_module(self.placement)

    def _build_module(self, wanted: EmbeddingPlacement) -> KerasModule:
        term = functions.model_function(self.location.function, self.framework)
        spec = self._spec
        with placement.use_placement(wanted):
            model = self._call(term, **self.model_params)
            if not isinstance(model, keras.Model):
                raise self._make_error(term, model)
            if not model.built:
                self._build(model, spec[0])
            model, notes = moving.move_embeddings(model, wanted)
        for note in notes:
            _log.info("%s", note)
        return KerasModule(model, self._loss if self.has_function(functions.LOSS) else None, spec)

    def build_optimizer(self, module: nn.Module, lr: float | None = None) -> torch.optim.Optimizer:
        assert isinstance(module, KerasModule)
        built = self._call(functions.KERAS_OPTIMIZER, **self._optimizer_keywords(lr))
        if not isinstance(built, keras.optimizers.Optimizer):
            raise self._make_error(functions.KERAS_OPTIMIZER, built)
        optimizer = KerasOptimizer(module, built)
        if optimizer.is_scheduled and self.has_function(functions.LEARNING_RATE):
            raise ModelError(
                f"{self.location.file}: learning_rate(step) and the schedule of the optimizer say two things; keep one"
            )
        return optimizer

    def batch_loss(self, module: nn.Module, features: Any, labels: Any) -> torch.Tensor:
        assert isinstance(module, KerasModule)
        return module.batch_loss(features, labels)

    def export(self, module: nn.Module, sample: Any | None, target: AnyPath, extra: dict[str, Any]) -> None:
        assert isinstance(module, KerasModule)
        whole = module
        if module.rows is not None:
            whole = self._build_module(IN_MODEL)
            attach.copy_values(whole, module)
        model, features = whole.write_statistics(), self._spec[0]
        if hasattr(model, SERVED_METHOD):
            model, features = model.served()
            self._build(model, features)
        exports.export_with_program(
            lambda place: model_export.write_programs(model, features, place), whole, target, extra, self.model_files()
        )

    def make_trainable(
        self, module: nn.Module, optimizer: torch.optim.Optimizer, on_gradients: Callable[[], None]
    ) -> KerasTrainable:
        assert isinstance(module, KerasModule)
        return KerasTrainable(module, optimizer, module.batch_loss, on_gradients)

    def rate_after(self, optimizer: torch.optim.Optimizer, step: int) -> float:
        assert isinstance(optimizer, KerasOptimizer)
        rate = self.learning_rate(step)
        return optimizer.rate_after(step) if rate is None else rate

    def loss(self, labels: Any, predictions: Any) -> Any:
        """The mean loss of a batch that is evaluated."""
        return tf.reduce_mean(self._loss(labels, predictions))

    def make_dataset(self, source: RecordSource, mode: Mode) -> KerasDataset | ArrayDataset:
        plain = Dataset(source, mode)

        def call(dataset: Any, mode: Mode, metadata: Any) -> Any:
            return self._call(functions.DATASET, dataset, mode, metadata)

        built: KerasDataset | ArrayDataset
        if arrays.is_numpy_dataset(self._get_function(functions.DATASET)):
            built = arrays.build_array_dataset(source, mode, lambda dataset: call(dataset, mode, plain.metadata))
        else:
            built = datasets.build_keras_dataset(source, mode, call, plain.metadata)
        self.specs[mode] = built.spec
        return built

    def make_callbacks(self, steps_per_epoch: int = 1) -> list[Callback]:
        found = self._call(functions.CALLBACKS) if self.has_function(functions.CALLBACKS) else []
        known = Callback | keras.callbacks.Callback
        if not isinstance(found, list | tuple) or not all(isinstance(callback, known) for callback in found):
            raise self._make_error(functions.CALLBACKS, found)
        own = [callback for callback in found if isinstance(callback, Callback)]
        foreign = [callback for callback in found if not isinstance(callback, Callback)]
        return [*own, *([KerasCallbackAdapter(foreign, steps_per_epoch)] if foreign else [])]

    def _loss(self, labels: Any, predictions: Any) -> Any:
        return self._get_function(functions.LOSS)(labels, predictions)

    def _flatten_metrics(self, found: dict[str, Any]) -> dict[str, Any]:
        return metrics.flatten_metrics(found)

    def _make_metric(self, name: str, metric: object) -> Metric:
        if isinstance(metric, tuple):
            output, each = metric
            return metrics.OutputMetric(output, self._make_metric(name, each))
        if isinstance(metric, keras.metrics.Metric):
            return metrics.KerasMetric(metric)
        found = super()._make_metric(name, metric)
        return metrics.FunctionMean(name, found.function) if isinstance(found, BatchMean) else found

    @property
    def _spec(self) -> tuple[Any, Any]:
        """Of the batches to train with, where there are any."""
        assert self.specs, "dataset() shows what the features are"
        return self.specs.get(Mode.TRAINING) or next(iter(self.specs.values()))

    def _build(self, model: Any, features: Any) -> None:
        try:
            with ignore_structure_warnings(), placement.build_only():
                trace = tf.function(lambda given: model(given, training=False), autograph=False)
                trace.get_concrete_function(features)
        except Exception as exc:
            raise ModelError(
                f"{self.location.file}: the model cannot be built for features {features}: {type(exc).__name__}: {exc}"
            ) from exc


def load_keras_contract(model: ModelSpec, kind: JobKind, wanted: EmbeddingPlacement) -> KerasContract:
    """Import the Keras model file of a job and check all its functions; one ModelError tells all problems."""
    install_legacy_modules()
    return replace(contracts.load_contract_as(KerasContract, model, kind), placement=wanted)


class KerasTrainable(TorchTrainable):
    def variables(self) -> NamedArrays:
        return {name: to_torch(variable).float().numpy() for name, variable in self._trained.items()}

    def set_variables(self, values: NamedArrays) -> None:
        for name, variable in self._trained.items():
            variable.assign(np.asarray(values[name], order="C"))

    @property
    def _trained(self) -> dict[str, Any]:
        found: dict[str, Any] = self.model.computation.variables.trained  # type: ignore[union-attr,assignment]
        return found


_LEGACY_MODULES: dict[str, dict[str, object]] = {
    "elasticdl.python.common.constants": {"Mode": Mode},
    "elasticdl.python.elasticdl.callbacks": {"LearningRateScheduler": LearningRateScheduler},
    "elasticdl.python.elasticdl.layers.embedding": {"Embedding": Embedding},
}


def install_legacy_modules() -> None:
    """Let these modules, and the packages around them, be imported."""
    for name, content in _LEGACY_MODULES.items():
        parts = name.split(".")
        for depth in range(2, len(parts) + 1):
            here = ".".join(parts[:depth])
            if here not in sys.modules:
                module = ModuleType(here)
                module.__path__ = []
                sys.modules[here] = module
                setattr(sys.modules[".".join(parts[: depth - 1])], parts[depth - 1], module)
        vars(sys.modules[name]).update(content)
