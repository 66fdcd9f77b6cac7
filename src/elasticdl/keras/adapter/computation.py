"""Compiles a Keras model: loss and gradients of a batch, and predictions, each one tf.function traced once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import ModelError
from elasticdl.keras.adapter import layer_names
from elasticdl.keras.embeddings.row_pulls import RowPulls
from elasticdl.keras.runtime import global_seed_generator, tf

if TYPE_CHECKING:
    from elasticdl.model.embeddings.row_sources import RowSource

LossFunction = Callable[[Any, Any], Any]


class ComputedBatch(NamedTuple):
    """The loss of a batch, its gradients, and the statistics after it."""

    loss: Any  # the mean of the batch
    gradients: list[Any]  # of the trained variables
    row_gradients: list[Any]  # of the rows that were pulled from ps
    statistics: list[Any]  # after the batch


class ModelVariables(NamedTuple):
    """The variables of a built model by how they change, under names that are the same in every process."""

    trained: dict[str, Any]
    statistics: dict[str, Any]  # changed by a forward pass
    frozen: dict[str, Any]  # never changed
    seeds: list[Any]

    @classmethod
    def from_model(cls, model: Any) -> ModelVariables:
        names = layer_names.stable_names(model, [variable.path for variable in model.weights])
        untrained_by_design = {
            id(v) for layer in layer_names.list_layers(model) for v in layer._non_trainable_variables
        }
        trained, statistics, frozen = {}, {}, {}
        for name, variable in zip(names, model.weights, strict=True):
            if variable.trainable:
                trained[name] = variable
            elif id(variable) in untrained_by_design:
                statistics[name] = variable
            else:
                frozen[name] = variable
        generators = [generator for layer in layer_names.list_layers(model) for generator in layer._seed_generators]
        # The last is Keras's own, for calls of keras.random without a seed.
        seeds = [generator.state for generator in (*generators, global_seed_generator())]
        return cls(trained, statistics, frozen, seeds)


class CompiledModel:
    """The compiled functions of one built model. `spec` are the specs of features and labels of any batch."""

    def __init__(self, model: Any, loss: LossFunction | None, spec: tuple[Any, Any]) -> None:
        self.model = model
        self.variables = ModelVariables.from_model(model)
        self.training_pulls = RowPulls()
        self.serving_pulls = RowPulls()
        features, labels = spec
        statistics = [_variable_spec(variable) for variable in self.variables.statistics.values()]
        seeds = tf.TensorSpec([len(self.variables.seeds), 2], tf.int64)
        self.train: Callable[[Any, Any, Any, Sequence[Any]], ComputedBatch] = _raise_no_loss
        if loss is not None and labels is not None:
            self.train = tf.function(
                partial(self._train, loss), input_signature=[features, labels, seeds, statistics], autograph=False
            )
        self.predict: Callable[[Any, Sequence[Any]], Any] = tf.function(
            self._predict, input_signature=[features, statistics], autograph=False
        )

    def draw_seeds(self) -> NDArray[np.int64]:
        """New seeds from the generator of NumPy: its seed decides the random numbers of the layers."""
        return np.random.randint(0, 2**31 - 1, size=(len(self.variables.seeds), 2), dtype=np.int64)

    def use_source(self, source: RowSource) -> None:
        """Pull rows from `source`."""
        self.training_pulls.source = self.serving_pulls.source = source

    def _train(
        self, loss: LossFunction, features: Any, labels: Any, seeds: Any, statistics: Sequence[Any]
    ) -> ComputedBatch:
        variables = self.variables
        for number, state in enumerate(variables.seeds):
            state.assign(tf.cast(seeds[number], state.dtype))
        self._set_statistics(statistics)
        trained = [variable.value for variable in variables.trained.values()]
        with tf.GradientTape() as tape, self.training_pulls.tracing(features, tape), ignore_structure_warnings():
            predictions = self.model(features, training=True)
            value = tf.reduce_mean(loss(labels, predictions))
            if self.model.losses:
                value += tf.cast(tf.add_n([tf.cast(extra, value.dtype) for extra in self.model.losses]), value.dtype)
        rows = self.training_pulls.row_tensors()
        tape_gradients = tape.gradient(value, [*trained, *rows], unconnected_gradients=tf.UnconnectedGradients.ZERO)
        gradients = [tf.convert_to_tensor(gradient) for gradient in tape_gradients]
        after = [tf.identity(variable.value) for variable in variables.statistics.values()]
        return ComputedBatch(value, gradients[: len(trained)], gradients[len(trained) :], after)

    def _predict(self, features: Any, statistics: Sequence[Any]) -> Any:
        self._set_statistics(statistics)
        with self.serving_pulls.tracing(features), ignore_structure_warnings():
            return self.model(features, training=False)

    def _set_statistics(self, statistics: Sequence[Any]) -> None:
        for variable, value in zip(self.variables.statistics.values(), statistics, strict=True):
            variable.assign(value)


@contextmanager
def ignore_structure_warnings() -> Iterator[None]:
    """Ignore the warning of Keras about features as a dict for a model with one input: model files do that."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The structure of `inputs` doesn't match")
        yield


def _raise_no_loss(*_: Any) -> ComputedBatch:
    raise ModelError("training needs a loss(labels, predictions), and labels")


def _variable_spec(variable: Any) -> Any:
    return tf.TensorSpec(variable.shape, variable.dtype)
