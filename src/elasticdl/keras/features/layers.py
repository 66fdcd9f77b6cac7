"""A Keras layer of the same name for each transform, with the same result to the bit."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Self

from elasticdl.errors import DataError
from elasticdl.features import transforms
from elasticdl.features.transforms import Transform, array_columns
from elasticdl.features.transforms.categorical import check_columns
from elasticdl.keras.features import tensor_columns
from elasticdl.keras.features.ops import TENSORFLOW_OPS
from elasticdl.keras.runtime import keras, tf

_KERAS_OPTIONS = ("name", "trainable", "dtype")


class TransformLayer(keras.layers.Layer):
    """A transform as a layer without weights. It takes the arguments of the definition."""

    definition_class: ClassVar[Any]
    output_dtype: ClassVar[str] = "int64"

    def __init__(self, *args: Any, **options: Any) -> None:
        # Numbers keep their type: Keras would cast them to float32 first.
        super().__init__(autocast=False, **{name: options.pop(name) for name in _KERAS_OPTIONS if name in options})
        self._convert_input_args = False
        self._allow_non_tensor_positional_args = True
        is_defined = len(args) == 1 and isinstance(args[0], self.definition_class)
        self.definition = args[0] if is_defined else self.definition_class(*args, **options)
        self.built = True

    @classmethod
    def from_definition(cls, definition: Transform) -> Self:
        """The layer of `definition`."""
        return cls(definition)

    @classmethod
    def from_statistics(cls, column: str, *, statistics: Any = None, name: str | None = None, **options: Any) -> Self:
        """The layer of the transform that is made from the statistics of a column."""
        definition = cls.definition_class.from_statistics(column, statistics=statistics, **options)
        return cls(definition, name=name)

    def call(self, values: Any) -> Any:
        return self.transform_tensors(tensor_columns.to_tensors(values))

    def transform_tensors(self, column: Any) -> Any:
        return tensor_columns.map_values(
            partial(self.definition.compute, TENSORFLOW_OPS, tables=self.constants()), column
        )

    def constants(self) -> dict[str, Any]:
        return {name: _constant(table) for name, table in self.definition.tables.items()}

    def compute_output_spec(self, values: Any) -> Any:
        return output_spec(values, values.shape, self.compute_output_dtype(values))

    def compute_output_dtype(self, values: Any) -> str:
        return self.output_dtype

    def get_config(self) -> dict[str, Any]:
        fields = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in _definition_fields(self.definition).items()
        }
        return {**super().get_config(), **fields}


def _constant(table: Any) -> Any:
    """A constant that graph optimizers do not see: they would replace a division by a product with the reciprocal."""
    constant = tf.constant(table)
    return constant if table.ndim else tf.raw_ops.PlaceholderWithDefault(input=constant, shape=constant.shape)


def output_spec(like: Any, shape: Any, dtype: Any, **kind: bool) -> Any:
    """The spec of a layer's output: sparse or ragged as `like` is, unless `kind` says otherwise."""
    if not kind:
        kind = {name: True for name in ("sparse", "ragged") if getattr(like, name, False)}
    return keras.KerasTensor(shape, dtype=dtype, **kind)


def _definition_fields(definition: Any) -> dict[str, Any]:
    return {name: getattr(definition, name) for name in definition.__dataclass_fields__}


register_layer = keras.saving.register_keras_serializable("elasticdl.features")


@register_layer
class Clip(TransformLayer):
    definition_class = transforms.Clip

    def compute_output_dtype(self, values: Any) -> str:
        return "float32" if values.dtype in ("float16", "bfloat16", "float32") else "float64"


@register_layer
class DateParts(TransformLayer):
    definition_class = transforms.DateParts

    def compute_output_spec(self, values: Any) -> Any:
        return output_spec(values, (*values.shape, len(self.definition.parts)), self.output_dtype)


@register_layer
class Discretization(TransformLayer):
    definition_class = transforms.Discretization

    def num_bins(self) -> int:
        return int(self.definition.num_bins())


@register_layer
class FieldIds(TransformLayer):
    definition_class = transforms.FieldIds


@register_layer
class Hashing(TransformLayer):
    definition_class = transforms.Hashing


@register_layer
class IndexLookup(TransformLayer):
    definition_class = transforms.IndexLookup

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if positions := self.definition.positions:
            with tf.init_scope():  # the table belongs to the layer, not to the function that is traced
                keys, values = tf.constant(list(positions)), tf.constant(list(positions.values()), tf.int64)
                self.vocabulary = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), -1)

    def num_bins(self) -> int:
        return int(self.definition.num_bins())

    def constants(self) -> dict[str, Any]:
        return {"vocabulary": getattr(self, "vocabulary", None)}


@register_layer
class LogRound(TransformLayer):
    definition_class = transforms.LogRound


@register_layer
class LogSquare(TransformLayer):
    definition_class = transforms.LogSquare


@register_layer
class MissingIndicator(TransformLayer):
    definition_class = transforms.MissingIndicator
    output_dtype = "float32"


@register_layer
class Normalizer(TransformLayer):
    definition_class = transforms.Normalizer
    output_dtype = "float32"


@register_layer
class RoundIdentity(TransformLayer):
    definition_class = transforms.RoundIdentity


@register_layer
class ToNumber(TransformLayer):
    definition_class = transforms.ToNumber

    def compute_output_dtype(self, values: Any) -> str:
        return str(self.definition.out_type)


@register_layer
class ToRagged(TransformLayer):
    """Returns a RaggedTensor."""

    definition_class = transforms.ToRagged

    def transform_tensors(self, column: Any) -> Any:
        flat, splits = tensor_columns.flatten_rows(column)
        kind = TENSORFLOW_OPS.kind(flat)
        if kind == "text":
            flat, splits = tensor_columns.split_texts(flat, splits, self.definition.sep)
        ignored = array_columns.resolve_ignore_value(kind, self.definition.ignore_value, owner="ToRagged", floats=None)
        if ignored is not None:
            flat, splits = tensor_columns.filter_values(
                flat, splits, tf.not_equal(flat, tf.constant(ignored, flat.dtype))
            )
        return tensor_columns.make_ragged(flat, splits)

    def compute_output_spec(self, values: Any) -> Any:
        return output_spec(values, (values.shape[0], None), values.dtype, ragged=True)


@register_layer
class Sequence(TransformLayer):
    """Returns a RaggedTensor of text; its ids become dense by `to_tensor`."""

    definition_class = transforms.Sequence

    def transform_tensors(self, column: Any) -> Any:
        flat, splits = tensor_columns.flatten_rows(column)
        if TENSORFLOW_OPS.kind(flat) != "text":
            raise DataError("Sequence: expected a column of text. Received: numbers")
        flat, splits = tensor_columns.split_texts(flat, splits, self.definition.sep)
        flat, splits = tensor_columns.filter_values(flat, splits, tf.not_equal(flat, ""))
        return tensor_columns.make_ragged(
            *tensor_columns.truncate_rows(
                flat, splits, self.definition.max_length, is_last=self.definition.keep == "last"
            )
        )

    def compute_output_spec(self, values: Any) -> Any:
        return output_spec(values, (values.shape[0], None), "string", ragged=True)


@register_layer
class ToSparse(TransformLayer):
    """Returns a SparseTensor."""

    definition_class = transforms.ToSparse

    def transform_tensors(self, column: Any) -> Any:
        if tensor_columns.is_sparse(column):
            return column
        if tensor_columns.is_ragged(column):
            raise DataError("ToSparse: expected a dense column. Received: a ragged one")
        ignored = array_columns.resolve_ignore_value(
            TENSORFLOW_OPS.kind(column), self.definition.ignore_value, owner="ToSparse", floats=0.0
        )
        return tensor_columns.make_sparse(column, tf.not_equal(column, tf.constant(ignored, column.dtype)))

    def compute_output_spec(self, values: Any) -> Any:
        return output_spec(values, values.shape, values.dtype, sparse=True)


@register_layer
class ConcatenateWithOffset(TransformLayer):
    definition_class = transforms.ConcatenateWithOffset

    def call(self, values: Any) -> Any:
        if not isinstance(values, list | tuple) or not values:
            raise DataError(f"ConcatenateWithOffset: expected a list of columns. Received: {type(values).__name__}")
        offsets = self.definition.resolve_offsets(len(values))
        return tensor_columns.concatenate_columns([tensor_columns.to_tensors(column) for column in values], offsets)

    def compute_output_spec(self, values: Any) -> Any:
        self.definition.resolve_offsets(len(values))
        widths = [column.shape[-1] if len(column.shape) > 1 else 1 for column in values]
        width = None if None in widths else sum(widths)
        return output_spec(values[0], (*(values[0].shape[:-1] or values[0].shape), width), self.output_dtype)


@register_layer
class Cross(TransformLayer):
    definition_class = transforms.Cross

    def call(self, values: Any) -> Any:
        check_columns(values)
        columns = [tensor_columns.to_tensors(column) for column in values]
        if any(tensor_columns.is_ragged(column) or tensor_columns.is_sparse(column) for column in columns):
            return self._cross_many_values(columns)
        return self.definition.compute(TENSORFLOW_OPS, columns, {})

    def _cross_many_values(self, columns: list[Any]) -> Any:
        first, others = columns[0], columns[1:]
        if all(tensor_columns.is_ragged(column) for column in columns):
            checks = [tf.debugging.assert_equal(first.row_splits, column.row_splits) for column in others]
            flat = [column.flat_values for column in columns]
        elif all(tensor_columns.is_sparse(column) for column in columns):
            checks = [tf.debugging.assert_equal(first.indices, column.indices) for column in others]
            flat = [column.values for column in columns]
        else:
            raise DataError("Cross: expected columns of the same shape, with the same number of values in each row")
        with tf.control_dependencies([check for check in checks if check is not None]):
            crossed = tf.identity(self.definition.compute(TENSORFLOW_OPS, flat, {}))
        return tensor_columns.map_values(lambda _: crossed, first)

    def compute_output_spec(self, values: Any) -> Any:
        check_columns(values)
        return output_spec(values[0], values[0].shape, self.output_dtype)
