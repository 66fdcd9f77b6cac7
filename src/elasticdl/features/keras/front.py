"""A front as a Keras layer: raw columns in, what a model takes out, all in the graph and so in a SavedModel.

It gives what `Front.encode` gives, to the bit; the logarithm of `normalize(log=true)` is TensorFlow's, which may differ
in the last bit of float64, and so once in some 10⁸ values in the last bit of the float32 that comes out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticdl.features import encoders as known
from elasticdl.features.front import Front
from elasticdl.features.keras import layers, numerals
from elasticdl.features.keras.layer import Layer
from elasticdl.features.layout import FIELD_BITS, FIRST, MISSING, PADDING, UNKNOWN
from elasticdl.features.statistics import Kind
from elasticdl.keras.runtime import keras, tf

OfText = known.VocabularyEncoder | known.HashEncoder | known.DateEncoder
OUT_OF_RANGE = UNKNOWN - FIRST


class FrontLayer(keras.layers.Layer):
    """Takes a dict of raw columns [rows]: numbers as float64, NaN where missing; all else text, "" where missing."""

    def __init__(self, front: Front, **options: Any) -> None:
        super().__init__(autocast=False, **options)
        self._convert_input_args = False
        self.front = front
        self.of_fields = [layer_of(one) for one in front.fields]
        self.of_numbers = [
            layers.Normalizer(one.subtract, one.divide) if isinstance(one, known.NumberEncoder) else None
            for one in front.numbers
        ]
        self.of_rates = [layer_of(one.of) for one in front.rates]
        self.splitting = [layers.Sequence(one.sep, one.longest) for one in front.sequences]
        self.of_sequences = [layer_of(one.of) for one in front.sequences]
        self.built = True

    @property
    def specs(self) -> dict[str, Any]:
        """Of the columns it takes, for any number of rows."""
        kinds = self.front.columns.items()
        return {
            name: tf.TensorSpec([None], tf.float64 if kind is Kind.NUMBER else tf.string, name=name)
            for name, kind in kinds
        }

    def call(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        rows = _Columns(columns)
        front = self.front
        count = tf.shape(next(iter(columns.values())))[0]
        ids = [
            _field(one, layer, rows) + (place << FIELD_BITS)
            for place, (one, layer) in enumerate(zip(front.fields, self.of_fields, strict=True))
        ]
        numbers = [_number(one, layer, rows) for one, layer in zip(front.numbers, self.of_numbers, strict=True)]
        for rate, layer in zip(front.rates, self.of_rates, strict=True):
            values = _field(rate.of, layer, rows)
            numbers += [tf.gather(tf.constant(table, tf.float32), values) for table in (rate.clicked, rate.seen)]
        found = {
            "ids": tf.stack(ids, 1) if ids else tf.zeros([count, 0], tf.int64),
            "numbers": tf.stack(numbers, 1) if numbers else tf.zeros([count, 0], tf.float32),
        }
        names, own = front.layout.names, len(front.fields)
        for extra, one in enumerate(front.sequences):
            field = names.index(one.like) if one.like else own + extra
            parts = self.splitting[extra](rows.texts(one.column, Kind.TEXT))
            of = parts.with_flat_values(_of_text(one.of, self.of_sequences[extra], parts.flat_values))
            found[one.name] = (of + (field << FIELD_BITS)).to_tensor(PADDING, shape=[None, one.longest])
        return found


class _Columns:
    """Raw columns; each is written as text once, however many encoders take it."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._columns = columns
        self._written: dict[str, Any] = {}

    def numbers(self, name: str) -> Any:
        return self._columns[name]

    def texts(self, name: str, kind: Kind) -> Any:
        if kind is not Kind.NUMBER:
            return self._columns[name]
        if name not in self._written:
            self._written[name] = numerals.written(self.numbers(name))
        return self._written[name]


def layer_of(encoder: known.FieldEncoder) -> Layer:
    """The layer of the transformation inside it."""
    match encoder:
        case known.BoundsEncoder():
            return layers.Discretization(encoder.bounds)
        case known.LogSquareEncoder():
            return layers.LogSquare()
        case known.LogRoundEncoder():
            return layers.LogRound(encoder.bins, OUT_OF_RANGE, encoder.base)
        case known.RoundEncoder():
            return layers.RoundIdentity(encoder.bins, OUT_OF_RANGE)
        case known.VocabularyEncoder():
            return layers.IndexLookup(encoder.values, encoder.unknown)
        case known.HashEncoder():
            return layers.Hashing(encoder.bins)
        case known.DateEncoder():
            return layers.DateParts((encoder.part,))
        case known.CrossEncoder():
            return layers.Cross(encoder.bins)


def _field(encoder: known.FieldEncoder, layer: Any, columns: _Columns) -> Any:
    missing = tf.constant(MISSING, tf.int64)
    if isinstance(encoder, known.CrossEncoder):
        texts = [columns.texts(name, kind) for name, kind in zip(encoder.columns, encoder.kinds, strict=True)]
        is_missing = tf.reduce_all(tf.stack([tf.equal(text, "") for text in texts]), 0)
        return tf.where(is_missing, missing, FIRST + layer(texts))
    if isinstance(encoder, OfText):
        texts = columns.texts(encoder.column, Kind.DATE if isinstance(encoder, known.DateEncoder) else encoder.kind)
        return tf.where(tf.equal(texts, ""), missing, _of_text(encoder, layer, texts))
    numbers = columns.numbers(encoder.column)
    made = layer(numbers)
    if isinstance(encoder, known.LogSquareEncoder):
        made = tf.clip_by_value(made, encoder.lowest, encoder.highest) - encoder.lowest
    return tf.where(tf.math.is_nan(numbers), missing, FIRST + made)


def _of_text(encoder: OfText, layer: Any, texts: Any) -> Any:
    """Ids of texts that are there."""
    if isinstance(encoder, known.HashEncoder):
        return FIRST + layer(texts)
    if isinstance(encoder, known.DateEncoder):
        part = layer(texts)[:, 0]
        return tf.where(part < 0, tf.constant(UNKNOWN, tf.int64), FIRST + part)
    places, size = layer(texts), len(encoder.values)
    return tf.where(places < size, places + 1 + encoder.unknown, places - size + 1)


def _number(encoder: known.AnyNumberEncoder, layer: Any, columns: _Columns) -> Any:
    if isinstance(encoder, known.MissingEncoder):
        if encoder.kind is Kind.NUMBER:
            return tf.cast(tf.math.is_nan(columns.numbers(encoder.column)), tf.float32)
        return tf.cast(tf.equal(columns.texts(encoder.column, Kind.TEXT), ""), tf.float32)
    values = columns.numbers(encoder.column)
    is_missing = tf.math.is_nan(values)
    if encoder.low is not None:
        values = tf.where(values > encoder.low, values, tf.constant(encoder.low, tf.float64))
    if encoder.high is not None:
        values = tf.where(values < encoder.high, values, tf.constant(encoder.high, tf.float64))
    if encoder.log:
        values = tf.math.log1p(tf.maximum(values - encoder.shift, 0.0))
    return tf.where(is_missing, tf.constant(encoder.missing, tf.float32), layer(values))
