"""The preprocessor as a Keras layer: raw columns become a model's inputs in the graph, and so in a SavedModel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticdl.features.layout import FIELD_BITS, FIRST_ID, MISSING_ID, PADDING_ID, UNKNOWN_ID
from elasticdl.features.preprocessing import encoders
from elasticdl.features.preprocessing.preprocessor import Preprocessor
from elasticdl.features.statistics import ColumnKind
from elasticdl.keras.features import layers, ops
from elasticdl.keras.features.layers import TransformLayer
from elasticdl.keras.runtime import keras, tf

TextEncoder = encoders.IndexLookupEncoder | encoders.HashingEncoder | encoders.DatePartEncoder
OUT_OF_RANGE = UNKNOWN_ID - FIRST_ID


class PreprocessorLayer(keras.layers.Layer):
    """Takes a dict of raw columns [rows]: float64 numbers, NaN if missing; all others as text, "" if missing."""

    def __init__(self, preprocessor: Preprocessor, **options: Any) -> None:
        super().__init__(autocast=False, **options)
        self._convert_input_args = False
        self.preprocessor = preprocessor
        self.field_layers = [make_layer(encoder) for encoder in preprocessor.fields]
        self.number_layers = [
            layers.Normalizer(encoder.subtractor, encoder.divisor)
            if isinstance(encoder, encoders.NumberEncoder)
            else None
            for encoder in preprocessor.numbers
        ]
        self.target_layers = [make_layer(target.encoder) for target in preprocessor.target_encoders]
        self.sequence_splitters = [
            layers.Sequence(sequence.sep, sequence.max_length) for sequence in preprocessor.sequences
        ]
        self.sequence_layers = [make_layer(sequence.encoder) for sequence in preprocessor.sequences]
        self.built = True

    @property
    def input_specs(self) -> dict[str, Any]:
        """The specs of the columns that it takes, for any number of rows."""
        kinds = self.preprocessor.columns.items()
        return {
            name: tf.TensorSpec([None], tf.float64 if kind is ColumnKind.NUMBER else tf.string, name=name)
            for name, kind in kinds
        }

    def call(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        rows = _Columns(columns)
        preprocessor = self.preprocessor
        count = tf.shape(next(iter(columns.values())))[0]
        ids = [
            _encode_field(encoder, layer, rows) + (field << FIELD_BITS)
            for field, (encoder, layer) in enumerate(zip(preprocessor.fields, self.field_layers, strict=True))
        ]
        numbers = [
            _encode_number(encoder, layer, rows)
            for encoder, layer in zip(preprocessor.numbers, self.number_layers, strict=True)
        ]
        for rate, layer in zip(preprocessor.target_encoders, self.target_layers, strict=True):
            values = _encode_field(rate.encoder, layer, rows)
            numbers += [
                tf.gather(tf.constant(table, tf.float32), values) for table in (rate.log_odds, rate.frequencies)
            ]
        outputs = {
            "ids": tf.stack(ids, 1) if ids else tf.zeros([count, 0], tf.int64),
            "numbers": tf.stack(numbers, 1) if numbers else tf.zeros([count, 0], tf.float32),
        }
        names, own = preprocessor.layout.field_names, len(preprocessor.fields)
        for extra, sequence in enumerate(preprocessor.sequences):
            field = names.index(sequence.like) if sequence.like else own + extra
            parts = self.sequence_splitters[extra](rows.texts(sequence.column, ColumnKind.TEXT))
            encoded = _encode_text(sequence.encoder, self.sequence_layers[extra], parts.flat_values)
            values = parts.with_flat_values(encoded) + (field << FIELD_BITS)
            outputs[sequence.name] = values.to_tensor(PADDING_ID, shape=[None, sequence.max_length])
        return outputs


class _Columns:
    """Raw columns. Each is converted to text once, however many encoders use it."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._columns = columns
        self._texts: dict[str, Any] = {}

    def numbers(self, name: str) -> Any:
        return self._columns[name]

    def texts(self, name: str, kind: ColumnKind) -> Any:
        if kind is not ColumnKind.NUMBER:
            return self._columns[name]
        if name not in self._texts:
            self._texts[name] = ops.format_numbers(self.numbers(name))
        return self._texts[name]


def make_layer(encoder: encoders.FieldEncoder) -> TransformLayer:
    """The layer of the transform inside of the encoder."""
    match encoder:
        case encoders.DiscretizationEncoder():
            return layers.Discretization(encoder.bins)
        case encoders.LogSquareEncoder():
            return layers.LogSquare()
        case encoders.LogRoundEncoder():
            return layers.LogRound(encoder.num_bins, OUT_OF_RANGE, encoder.base)
        case encoders.RoundIdentityEncoder():
            return layers.RoundIdentity(encoder.num_buckets, OUT_OF_RANGE)
        case encoders.IndexLookupEncoder():
            return layers.IndexLookup(encoder.vocabulary, encoder.num_oov_tokens)
        case encoders.HashingEncoder():
            return layers.Hashing(encoder.num_bins)
        case encoders.DatePartEncoder():
            return layers.DateParts((encoder.part,))
        case encoders.CrossEncoder():
            return layers.Cross(encoder.num_bins)


def _encode_field(encoder: encoders.FieldEncoder, layer: Any, columns: _Columns) -> Any:
    missing = tf.constant(MISSING_ID, tf.int64)
    if isinstance(encoder, encoders.CrossEncoder):
        texts = [columns.texts(name, kind) for name, kind in zip(encoder.columns, encoder.kinds, strict=True)]
        is_missing = tf.reduce_all(tf.stack([tf.equal(text, "") for text in texts]), 0)
        return tf.where(is_missing, missing, FIRST_ID + layer(texts))
    if isinstance(encoder, TextEncoder):
        texts = columns.texts(
            encoder.column, ColumnKind.DATE if isinstance(encoder, encoders.DatePartEncoder) else encoder.kind
        )
        return tf.where(tf.equal(texts, ""), missing, _encode_text(encoder, layer, texts))
    numbers = columns.numbers(encoder.column)
    values = layer(numbers)
    if isinstance(encoder, encoders.LogSquareEncoder):
        values = tf.clip_by_value(values, encoder.minimum, encoder.maximum) - encoder.minimum
    return tf.where(tf.math.is_nan(numbers), missing, FIRST_ID + values)


def _encode_text(encoder: TextEncoder, layer: Any, texts: Any) -> Any:
    """The ids of texts that are not missing."""
    if isinstance(encoder, encoders.HashingEncoder):
        return FIRST_ID + layer(texts)
    if isinstance(encoder, encoders.DatePartEncoder):
        part = layer(texts)[:, 0]
        return tf.where(part < 0, tf.constant(UNKNOWN_ID, tf.int64), FIRST_ID + part)
    indices, size = layer(texts), len(encoder.vocabulary)
    return tf.where(indices < size, indices + 1 + encoder.num_oov_tokens, indices - size + 1)


def _encode_number(encoder: encoders.AnyNumberEncoder, layer: Any, columns: _Columns) -> Any:
    if isinstance(encoder, encoders.MissingIndicatorEncoder):
        if encoder.kind is ColumnKind.NUMBER:
            return tf.cast(tf.math.is_nan(columns.numbers(encoder.column)), tf.float32)
        return tf.cast(tf.equal(columns.texts(encoder.column, ColumnKind.TEXT), ""), tf.float32)
    values = columns.numbers(encoder.column)
    is_missing = tf.math.is_nan(values)
    if encoder.minimum is not None:
        values = tf.where(values > encoder.minimum, values, tf.constant(encoder.minimum, tf.float64))
    if encoder.maximum is not None:
        values = tf.where(values < encoder.maximum, values, tf.constant(encoder.maximum, tf.float64))
    if encoder.log:
        values = tf.math.log1p(tf.maximum(values - encoder.shift, 0.0))
    return tf.where(is_missing, tf.constant(encoder.missing_value, tf.float32), layer(values))
