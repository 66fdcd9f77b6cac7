"""Ids of all shapes, and one vector for all ids of a record: dense, ragged and sparse ids alike."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from elasticdl.errors import ModelError
from elasticdl.keras.runtime import tf

Combiner = Literal["sum", "mean", "sqrtn"]
COMBINERS = ("sum", "mean", "sqrtn")


class Bags(NamedTuple):
    """Ids in one dimension, and the record that each belongs to, in order."""

    ids: Any
    records: Any
    count: Any  # of the records

    @classmethod
    def of(cls, ids: Any, missing: int | None) -> Bags:
        """Ids below 0 are left out, as is `missing` among dense ones. Ragged and sparse ids have two dimensions."""
        if isinstance(ids, tf.RaggedTensor):
            _expect_two(ids.shape)
            flat, records, count = ids.values, ids.value_rowids(), ids.nrows()
        elif isinstance(ids, tf.SparseTensor):
            _expect_two(ids.shape)
            flat, records, count = ids.values, ids.indices[:, 0], ids.dense_shape[0]
        else:
            _expect_two(ids.shape)
            shape = tf.shape(ids, out_type=tf.int64)
            flat, count = tf.reshape(ids, [-1]), shape[0]
            records = tf.repeat(tf.range(count), shape[1])
            if missing is not None:
                return cls._kept(flat, records, count, (flat != missing) & (flat >= 0))
        return cls._kept(flat, records, count, flat >= 0)

    @classmethod
    def _kept(cls, ids: Any, records: Any, count: Any, keep: Any) -> Bags:
        return cls(tf.boolean_mask(ids, keep), tf.boolean_mask(records, keep), count)


def combine(vectors: Any, bags: Bags, combiner: str) -> Any:
    """One vector for each record: zeros where it has no ids."""
    sums = tf.math.unsorted_segment_sum(vectors, bags.records, bags.count)
    if combiner == "sum":
        return sums
    ones = tf.ones_like(bags.records, vectors.dtype)
    numbers = tf.math.unsorted_segment_sum(ones, bags.records, bags.count)[:, tf.newaxis]
    return tf.math.divide_no_nan(sums, tf.sqrt(numbers) if combiner == "sqrtn" else numbers)


def _expect_two(shape: Any) -> None:
    if shape.rank != 2:
        raise ModelError(
            f"embedding with a combiner: expected ids of two dimensions, records and their ids. Received: {shape}"
        )
