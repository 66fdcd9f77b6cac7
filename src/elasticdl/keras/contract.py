"""The functions of a Keras model file. What the engine gets of them are the torch faces of `module` and `optimizer`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import nn

from elasticdl.checkpoint import export as exports
from elasticdl.data.dataset import Dataset
from elasticdl.data.interface import RecordSource
from elasticdl.data.mode import Mode
from elasticdl.errors import ModelError
from elasticdl.keras import arrays, attached, earlier, metrics, moving, placing, saving
from elasticdl.keras import dataset as datasets
from elasticdl.keras.arrays import ArrayDataset
from elasticdl.keras.callbacks import KerasCallbacks
from elasticdl.keras.computing import told_structures
from elasticdl.keras.dataset import KerasDataset
from elasticdl.keras.module import KerasModule
from elasticdl.keras.optimizer import KerasOptimizer
from elasticdl.keras.placing import IN_MODEL, Placing
from elasticdl.keras.runtime import keras, tf
from elasticdl.keras.trainee import KerasTrainee
from elasticdl.model import contract as contracts
from elasticdl.model import terms
from elasticdl.model.callbacks import Callback
from elasticdl.model.contract import Contract
from elasticdl.model.metrics import BatchMean, Metric
from elasticdl.model.source import Framework
from elasticdl.spec import JobKind, ModelSpec
from elasticdl.storage.place import Place

SERVED = "served"  # a method of a model: what is exported in its place, and the specs of the features that takes

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KerasContract(Contract):
    """As Contract, for Keras. `dataset` comes before `build_model`: it shows what the features are."""

    specs: dict[Mode, tuple[Any, Any]] = field(default_factory=dict)
    placing: Placing = IN_MODEL
    framework: ClassVar[Framework] = Framework.KERAS

    def build_model(self) -> KerasModule:
        """A new model; its weights come from Python's random numbers, so seed those first."""
        return self._module(self.placing)

    def _module(self, wanted: Placing) -> KerasModule:
        term = terms.model_term(self.place.function, self.framework)
        spec = self._spec
        with placing.placing(wanted):
            model = self._call(term, **self.model_params)
            if not isinstance(model, keras.Model):
                raise self._wrong(term, model)
            if not model.built:
                self._build(model, spec[0])
            model, notes = moving.move(model, wanted)
        for note in notes:
            _log.info("%s", note)
        return KerasModule(model, self._loss if self.has(terms.LOSS) else None, spec)

    def build_optimizer(self, module: nn.Module, lr: float | None = None) -> torch.optim.Optimizer:
        assert isinstance(module, KerasModule)
        built = self._call(terms.KERAS_OPTIMIZER, **self._optimizer_keywords(lr))
        if not isinstance(built, keras.optimizers.Optimizer):
            raise self._wrong(terms.KERAS_OPTIMIZER, built)
        optimizer = KerasOptimizer(module, built)
        if optimizer.is_scheduled and self.has(terms.LEARNING_RATE):
            raise ModelError(
                f"{self.place.file}: learning_rate(step) and the schedule of the optimizer say two things; keep one"
            )
        return optimizer

    def batch_loss(self, module: nn.Module, features: Any, labels: Any) -> torch.Tensor:
        assert isinstance(module, KerasModule)
        return module.batch_loss(features, labels)

    def export(self, module: nn.Module, sample: Any | None, target: Place, extra: dict[str, Any]) -> None:
        assert isinstance(module, KerasModule)
        whole = module
        if module.rows is not None:
            whole = self._module(IN_MODEL)
            attached.fill(whole, module)
        model, features = whole.settle(), self._spec[0]
        if hasattr(model, SERVED):
            model, features = model.served()
            self._build(model, features)
        exports.export_with(
            lambda place: saving.write(model, features, place), whole, target, extra, self.model_files()
        )

    def trainee(
        self, module: nn.Module, optimizer: torch.optim.Optimizer, on_gradients: Callable[[], None]
    ) -> KerasTrainee:
        assert isinstance(module, KerasModule)
        return KerasTrainee(module, optimizer, module.batch_loss, on_gradients)

    def rate(self, optimizer: torch.optim.Optimizer, step: int) -> float:
        assert isinstance(optimizer, KerasOptimizer)
        rate = self.learning_rate(step)
        return optimizer.rate(step) if rate is None else rate

    def loss(self, labels: Any, predictions: Any) -> Any:
        """The mean loss of a batch that is evaluated."""
        return tf.reduce_mean(self._loss(labels, predictions))

    def dataset(self, source: RecordSource, mode: Mode) -> KerasDataset | ArrayDataset:
        plain = Dataset(source, mode)

        def call(dataset: Any, mode: Mode, metadata: Any) -> Any:
            return self._call(terms.DATASET, dataset, mode, metadata)

        built: KerasDataset | ArrayDataset
        if arrays.takes_arrays(self._function(terms.DATASET)):
            built = arrays.build(source, mode, lambda dataset: call(dataset, mode, plain.metadata))
        else:
            built = datasets.build(source, mode, call, plain.metadata)
        self.specs[mode] = built.spec
        return built

    def callbacks(self, steps_per_epoch: int = 1) -> list[Callback]:
        found = self._call(terms.CALLBACKS) if self.has(terms.CALLBACKS) else []
        known = Callback | keras.callbacks.Callback
        if not isinstance(found, list | tuple) or not all(isinstance(callback, known) for callback in found):
            raise self._wrong(terms.CALLBACKS, found)
        own = [callback for callback in found if isinstance(callback, Callback)]
        foreign = [callback for callback in found if not isinstance(callback, Callback)]
        return [*own, *([KerasCallbacks(foreign, steps_per_epoch)] if foreign else [])]

    def _loss(self, labels: Any, predictions: Any) -> Any:
        return self._function(terms.LOSS)(labels, predictions)

    def _flat(self, found: dict[str, Any]) -> dict[str, Any]:
        return metrics.flat(found)

    def _metric(self, name: str, metric: object) -> Metric:
        if isinstance(metric, tuple):
            output, each = metric
            return metrics.OfOutput(output, self._metric(name, each))
        if isinstance(metric, keras.metrics.Metric):
            return metrics.KerasMetric(metric)
        found = super()._metric(name, metric)
        return metrics.FunctionMean(name, found.function) if isinstance(found, BatchMean) else found

    @property
    def _spec(self) -> tuple[Any, Any]:
        """Of the batches to train with, where there are any."""
        assert self.specs, "dataset() shows what the features are"
        return self.specs.get(Mode.TRAINING) or next(iter(self.specs.values()))

    def _build(self, model: Any, features: Any) -> None:
        try:
            with told_structures(), placing.building():
                trace = tf.function(lambda given: model(given, training=False), autograph=False)
                trace.get_concrete_function(features)
        except Exception as exc:
            raise ModelError(
                f"{self.place.file}: the model cannot be built for features {features}: {type(exc).__name__}: {exc}"
            ) from exc


def load(model: ModelSpec, kind: JobKind, wanted: Placing) -> KerasContract:
    """Import the Keras model file of a job and check all its functions; one ModelError tells all problems."""
    earlier.install()
    return replace(contracts.loaded(KerasContract, model, kind), placing=wanted)
