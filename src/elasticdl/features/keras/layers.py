"""A Keras layer of the same name for each transformation: it computes what the definition does, to the bit.

A layer takes the arguments of the definition, and columns as dense, ragged or sparse tensors, as inputs of the
functional API, and as lists, NumPy and Arrow columns. All of it is in the graph, and so in a SavedModel.
"""

from __future__ import annotations

from typing import Any

from elasticdl.errors import DataError
from elasticdl.features import transforms
from elasticdl.features.keras import structure
from elasticdl.features.keras.layer import Layer, spec
from elasticdl.features.keras.ops import OPS
from elasticdl.features.transforms import rows
from elasticdl.features.transforms.cross import expect_columns
from elasticdl.keras.runtime import keras, tf

registered = keras.saving.register_keras_serializable("elasticdl.features")


@registered
class Clip(Layer):
    defined = transforms.Clip

    def output_type(self, values: Any) -> str:
        return "float32" if values.dtype in ("float16", "bfloat16", "float32") else "float64"


@registered
class DateParts(Layer):
    defined = transforms.DateParts

    def compute_output_spec(self, values: Any) -> Any:
        return spec(values, (*values.shape, len(self.definition.parts)), self.gives)


@registered
class Discretization(Layer):
    defined = transforms.Discretization

    def num_bins(self) -> int:
        return int(self.definition.num_bins())


@registered
class FieldIds(Layer):
    defined = transforms.FieldIds


@registered
class Hashing(Layer):
    defined = transforms.Hashing


@registered
class IndexLookup(Layer):
    defined = transforms.IndexLookup

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if places := self.definition.places:
            with tf.init_scope():  # the table belongs to the layer, not to a function that happens to make it
                keys, values = tf.constant(list(places)), tf.constant(list(places.values()), tf.int64)
                self.vocabulary = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), -1)

    def num_bins(self) -> int:
        return int(self.definition.num_bins())

    def constants(self) -> dict[str, Any]:
        return {"vocabulary": getattr(self, "vocabulary", None)}


@registered
class LogRound(Layer):
    defined = transforms.LogRound


@registered
class LogSquare(Layer):
    defined = transforms.LogSquare


@registered
class MissingIndicator(Layer):
    defined = transforms.MissingIndicator
    gives = "float32"


@registered
class Normalizer(Layer):
    defined = transforms.Normalizer
    gives = "float32"


@registered
class RoundIdentity(Layer):
    defined = transforms.RoundIdentity


@registered
class ToNumber(Layer):
    defined = transforms.ToNumber

    def output_type(self, values: Any) -> str:
        return str(self.definition.out_type)


@registered
class ToRagged(Layer):
    """Gives a RaggedTensor."""

    defined = transforms.ToRagged

    def on_tensors(self, column: Any) -> Any:
        flat, splits = structure.rows_of(column)
        kind = OPS.kind(flat)
        if kind == "text":
            flat, splits = structure.split(flat, splits, self.definition.sep)
        ignored = rows.default_ignored(kind, self.definition.ignore_value, owner="ToRagged", floats=None)
        if ignored is not None:
            flat, splits = structure.kept(flat, splits, tf.not_equal(flat, tf.constant(ignored, flat.dtype)))
        return structure.ragged(flat, splits)

    def compute_output_spec(self, values: Any) -> Any:
        return spec(values, (values.shape[0], None), values.dtype, ragged=True)


@registered
class Sequence(Layer):
    """Gives a RaggedTensor of text; `to_tensor` of the ids that are made of it is dense."""

    defined = transforms.Sequence

    def on_tensors(self, column: Any) -> Any:
        flat, splits = structure.rows_of(column)
        if OPS.kind(flat) != "text":
            raise DataError("Sequence: expected a column of text. Received: numbers")
        flat, splits = structure.split(flat, splits, self.definition.sep)
        flat, splits = structure.kept(flat, splits, tf.not_equal(flat, ""))
        return structure.ragged(
            *structure.cut(flat, splits, self.definition.longest, is_last=self.definition.keep == "last")
        )

    def compute_output_spec(self, values: Any) -> Any:
        return spec(values, (values.shape[0], None), "string", ragged=True)


@registered
class ToSparse(Layer):
    """Gives a SparseTensor."""

    defined = transforms.ToSparse

    def on_tensors(self, column: Any) -> Any:
        if structure.is_sparse(column):
            return column
        if structure.is_ragged(column):
            raise DataError("ToSparse: expected a dense column. Received: a ragged one")
        ignored = rows.default_ignored(OPS.kind(column), self.definition.ignore_value, owner="ToSparse", floats=0.0)
        return structure.sparse(column, tf.not_equal(column, tf.constant(ignored, column.dtype)))

    def compute_output_spec(self, values: Any) -> Any:
        return spec(values, values.shape, values.dtype, sparse=True)


@registered
class ConcatenateWithOffset(Layer):
    defined = transforms.ConcatenateWithOffset

    def call(self, values: Any) -> Any:
        if not isinstance(values, list | tuple) or not values:
            raise DataError(f"ConcatenateWithOffset: expected a list of columns. Received: {type(values).__name__}")
        offsets = self.definition.offsets_of(len(values))
        return structure.concatenated([structure.tensors(column) for column in values], offsets)

    def compute_output_spec(self, values: Any) -> Any:
        self.definition.offsets_of(len(values))
        widths = [column.shape[-1] if len(column.shape) > 1 else 1 for column in values]
        width = None if None in widths else sum(widths)
        return spec(values[0], (*(values[0].shape[:-1] or values[0].shape), width), self.gives)


@registered
class Cross(Layer):
    defined = transforms.Cross

    def call(self, values: Any) -> Any:
        expect_columns(values)
        columns = [structure.tensors(column) for column in values]
        if len({type(column) for column in columns if structure.is_ragged(column) or structure.is_sparse(column)}) > 0:
            return self._of_many(columns)
        return self.definition.compute(OPS, columns, {})

    def _of_many(self, columns: list[Any]) -> Any:
        first, others = columns[0], columns[1:]
        if all(structure.is_ragged(column) for column in columns):
            checks = [tf.debugging.assert_equal(first.row_splits, other.row_splits) for other in others]
            flat = [column.flat_values for column in columns]
        elif all(structure.is_sparse(column) for column in columns):
            checks = [tf.debugging.assert_equal(first.indices, other.indices) for other in others]
            flat = [column.values for column in columns]
        else:
            raise DataError("Cross: expected columns of the same shape, whose rows have as many values each")
        with tf.control_dependencies([check for check in checks if check is not None]):
            crossed = tf.identity(self.definition.compute(OPS, flat, {}))
        return structure.mapped(lambda _: crossed, first)

    def compute_output_spec(self, values: Any) -> Any:
        expect_columns(values)
        return spec(values[0], values[0].shape, self.gives)
