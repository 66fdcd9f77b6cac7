"""The contract of a Keras model file: its models and optimizers are adapted to torch modules and optimizers."""

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
from elasticdl.keras.served_model import ServedModel
from elasticdl.model import contract as contracts
from elasticdl.model import functions
from elasticdl.model.callbacks import Callback
from elasticdl.model.contract import Contract
from elasticdl.model.metrics import BatchMean, Metric
from elasticdl.model.source import Framework
from elasticdl.model.trainable import NamedArrays, TorchTrainable
from elasticdl.spec import JobKind, ModelSpec
from elasticdl.storage.paths import AnyPath

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KerasContract(Contract):
    """The contract of a Keras model file. Call `make_dataset` before `build_model`: it shows what the features are."""

    specs: dict[Mode, tuple[Any, Any]] = field(default_factory=dict)
    placement: EmbeddingPlacement = IN_MODEL
    framework: ClassVar[Framework] = Framework.KERAS

    def build_model(self) -> KerasModule:
        """A new model; its weights come from Python's random numbers, so seed those first."""
        return self._build_module(self.placement)

    def _build_module(self, embedding_placement: EmbeddingPlacement) -> KerasModule:
        model_function = functions.model_function(self.location.function, self.framework)
        spec = self._spec
        with placement.use_placement(embedding_placement):
            model = self._call(model_function, **self.model_params)
            if not isinstance(model, keras.Model):
                raise self._make_error(model_function, model)
            if not model.built:
                self._build(model, spec[0])
            model, notes = moving.move_embeddings(model, embedding_placement)
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
        full_module = module
        if module.rows is not None:
            full_module = self._build_module(IN_MODEL)
            attach.copy_values(full_module, module)
        model, features = full_module.write_statistics(), self._spec[0]
        if isinstance(model, ServedModel):
            model, features = model.served()
            self._build(model, features)
        exports.export_with_program(
            lambda directory: model_export.write_programs(model, features, directory),
            full_module,
            target,
            extra,
            self.model_files(),
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
        """The mean loss of a batch in an evaluation."""
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
        callbacks = self._call(functions.CALLBACKS) if self.has_function(functions.CALLBACKS) else []
        kinds = Callback | keras.callbacks.Callback
        if not isinstance(callbacks, list | tuple) or not all(isinstance(callback, kinds) for callback in callbacks):
            raise self._make_error(functions.CALLBACKS, callbacks)
        own = [callback for callback in callbacks if isinstance(callback, Callback)]
        of_keras = [callback for callback in callbacks if not isinstance(callback, Callback)]
        return [*own, *([KerasCallbackAdapter(of_keras, steps_per_epoch)] if of_keras else [])]

    def _loss(self, labels: Any, predictions: Any) -> Any:
        return self._get_function(functions.LOSS)(labels, predictions)

    def _flatten_metrics(self, nested: dict[str, Any]) -> dict[str, Any]:
        return metrics.flatten_metrics(nested)

    def _make_metric(self, name: str, metric: object) -> Metric:
        if isinstance(metric, tuple):
            output, each = metric
            return metrics.OutputMetric(output, self._make_metric(name, each))
        if isinstance(metric, keras.metrics.Metric):
            return metrics.KerasMetric(metric)
        plain = super()._make_metric(name, metric)
        return metrics.FunctionMean(name, plain.function) if isinstance(plain, BatchMean) else plain

    @property
    def _spec(self) -> tuple[Any, Any]:
        """The specs of the training batches; of others if there are none."""
        assert self.specs, "make_dataset() shows what the features are"
        return self.specs.get(Mode.TRAINING) or next(iter(self.specs.values()))

    def _build(self, model: Any, features: Any) -> None:
        try:
            with ignore_structure_warnings(), placement.build_only():
                trace = tf.function(lambda inputs: model(inputs, training=False), autograph=False)
                trace.get_concrete_function(features)
        except Exception as exc:
            raise ModelError(
                f"{self.location.file}: the model cannot be built for features {features}: {type(exc).__name__}: {exc}"
            ) from exc


def load_keras_contract(model: ModelSpec, kind: JobKind, embedding_placement: EmbeddingPlacement) -> KerasContract:
    """Import the Keras model file of a job and check all its functions; one ModelError names all problems."""
    install_legacy_modules()
    return replace(contracts.load_contract_as(KerasContract, model, kind), placement=embedding_placement)


class KerasTrainable(TorchTrainable):
    """A Keras model as the lease modes train it."""

    def variables(self) -> NamedArrays:
        return {name: to_torch(variable).float().numpy() for name, variable in self._trained.items()}

    def set_variables(self, values: NamedArrays) -> None:
        for name, variable in self._trained.items():
            variable.assign(np.asarray(values[name], order="C"))

    @property
    def _trained(self) -> dict[str, Any]:
        trained: dict[str, Any] = self.model.computation.variables.trained  # type: ignore[union-attr,assignment]
        return trained


_LEGACY_MODULES: dict[str, dict[str, object]] = {
    "elasticdl.python.common.constants": {"Mode": Mode},
    "elasticdl.python.elasticdl.callbacks": {"LearningRateScheduler": LearningRateScheduler},
    "elasticdl.python.elasticdl.layers.embedding": {"Embedding": Embedding},
}


def install_legacy_modules() -> None:
    """Make the module names of the first ElasticDL importable for old model files."""
    for name, content in _LEGACY_MODULES.items():
        parts = name.split(".")
        for depth in range(2, len(parts) + 1):
            package = ".".join(parts[:depth])
            if package not in sys.modules:
                module = ModuleType(package)
                module.__path__ = []
                sys.modules[package] = module
                setattr(sys.modules[".".join(parts[: depth - 1])], parts[depth - 1], module)
        vars(sys.modules[name]).update(content)
