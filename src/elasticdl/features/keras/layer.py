"""What all layers of transformations share."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Self

from elasticdl.features.keras import structure
from elasticdl.features.keras.ops import OPS
from elasticdl.features.transforms import Transformation
from elasticdl.keras.runtime import keras, tf

_OF_KERAS = ("name", "trainable", "dtype")


class Layer(keras.layers.Layer):
    """A transformation. It takes the arguments of the definition, and has no weights."""

    defined: ClassVar[Any]
    gives: ClassVar[str] = "int64"

    def __init__(self, *args: Any, **options: Any) -> None:
        # Numbers are taken in the type they come in: Keras would cast them to float32 first.
        super().__init__(autocast=False, **{name: options.pop(name) for name in _OF_KERAS if name in options})
        self._convert_input_args = False
        self._allow_non_tensor_positional_args = True
        is_defined = len(args) == 1 and isinstance(args[0], self.defined)
        self.definition = args[0] if is_defined else self.defined(*args, **options)
        self.built = True

    @classmethod
    def of(cls, definition: Transformation) -> Self:
        """The layer of this definition."""
        return cls(definition)

    @classmethod
    def from_statistics(cls, column: str, *, statistics: Any = None, name: str | None = None, **options: Any) -> Self:
        """As that of the definition."""
        definition = cls.defined.from_statistics(column, statistics=statistics, **options)
        return cls(definition, name=name)

    def call(self, values: Any) -> Any:
        return self.on_tensors(structure.tensors(values))

    def on_tensors(self, column: Any) -> Any:
        return structure.mapped(partial(self.definition.compute, OPS, tables=self.constants()), column)

    def constants(self) -> dict[str, Any]:
        return {name: _constant(table) for name, table in self.definition.tables.items()}

    def compute_output_spec(self, values: Any) -> Any:
        return spec(values, values.shape, self.output_type(values))

    def output_type(self, values: Any) -> str:
        return self.gives

    def get_config(self) -> dict[str, Any]:
        fields = {
            name: list(value) if isinstance(value, tuple) else value for name, value in _fields(self.definition).items()
        }
        return {**super().get_config(), **fields}


def _constant(table: Any) -> Any:
    """Not for the optimizer of a graph: it would multiply by the reciprocal of a divisor, which is not the same."""
    constant = tf.constant(table)
    return constant if table.ndim else tf.raw_ops.PlaceholderWithDefault(input=constant, shape=constant.shape)


def spec(like: Any, shape: Any, dtype: Any, **kind: bool) -> Any:
    """A symbol for what a layer gives: sparse or ragged as `like` is, if nothing else is said."""
    if not kind:
        kind = {name: True for name in ("sparse", "ragged") if getattr(like, name, False)}
    return keras.KerasTensor(shape, dtype=dtype, **kind)


def _fields(definition: Any) -> dict[str, Any]:
    return {name: getattr(definition, name) for name in definition.__dataclass_fields__}
