"""`elasticdl.keras.Embedding` and `SparseEmbedding`: layers whose rows may be on ps.

They take dense, ragged and sparse ids.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import ModelError
from elasticdl.keras.embeddings import placement, row_pulls
from elasticdl.keras.runtime import keras, tf


@keras.saving.register_keras_serializable("elasticdl")
class Embedding(keras.layers.Layer):
    """Works like keras.layers.Embedding. In a job with ps they hold its rows, created at first use.

    Args:
        output_dim: columns of a row.
        input_dim: the number of ids. Without it any int64 is an id, and the job needs ps.
        embeddings_initializer: of new rows.
        mask_zero: id 0 is padding that later layers skip.
        combiner: "sum", "mean" or "sqrtn": one vector for all ids of a record, which may be ragged or sparse.
    """

    missing_id: int | None = None  # the id that means no id, among dense ids that are combined

    def __init__(
        self,
        output_dim: int,
        input_dim: int | None = None,
        embeddings_initializer: Any = "uniform",
        mask_zero: bool = False,
        combiner: str | None = None,
        **options: Any,
    ) -> None:
        options.pop("input_length", None)  # of earlier Keras: the ids show it
        super().__init__(**options)
        if combiner is not None and combiner not in COMBINERS:
            raise ModelError(f"{self.name}: expected a combiner of {', '.join(COMBINERS)}. Received: {combiner!r}")
        self.output_dim = output_dim
        self.input_dim = input_dim
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.mask_zero = self.supports_masking = mask_zero
        self.combiner = combiner
        self.table = ""  # its name on the ps, once the model is whole
        self.is_on_ps = False
        self.embeddings: Any | None = None
        self.held: tuple[Any, Any] | None = None  # sorted ids and their rows, if the layer holds all its rows

    def build(self, input_shape: Any = None) -> None:
        self.is_on_ps = placement.current_placement().on_ps
        if not self.is_on_ps and self.input_dim is not None:
            self.embeddings = self.add_weight(
                shape=(self.input_dim, self.output_dim), initializer=self.embeddings_initializer, name="embeddings"
            )
        self.built = True

    @property
    def takes_any_id(self) -> bool:
        """Whether the layer has neither a table on ps nor a size, so that `hold_rows` must provide its rows."""
        return not self.is_on_ps and self.input_dim is None

    def hold_rows(self, ids: NDArray[np.int64], rows: NDArray[np.float32]) -> None:
        """Holds these rows; an id without a row has zeros."""
        order = np.argsort(ids, kind="stable")
        self.held = tf.Variable(ids[order], trainable=False), tf.Variable(rows[order], trainable=False)

    def call(self, ids: Any) -> Any:
        if self.combiner is None:
            if isinstance(ids, tf.RaggedTensor):
                return ids.with_flat_values(self._look_up(ids.flat_values, ids))
            if isinstance(ids, tf.SparseTensor):
                raise ModelError(f"{self.name}: expected a combiner for sparse ids. Received: none; use combiner='sum'")
            vectors = self._look_up(tf.reshape(ids, [-1]), ids)
            return tf.reshape(vectors, tf.concat([tf.shape(ids), [self.output_dim]], 0))
        bags = IdBags.from_ids(ids, self.missing_id)
        return combine_vectors(self._look_up(bags.ids, ids), bags, self.combiner)

    def compute_mask(self, ids: Any, mask: Any = None) -> Any:
        return keras.ops.not_equal(ids, 0) if self.mask_zero else None

    def compute_output_shape(self, input_shape: Any) -> Any:
        leading = tuple(input_shape)[:-1] if self.combiner else tuple(input_shape)
        return (*leading, self.output_dim)

    def compute_output_spec(self, ids: Any) -> Any:
        is_ragged = getattr(ids, "ragged", False) and self.combiner is None
        shape = self.compute_output_shape(ids.shape)
        return keras.KerasTensor(shape, dtype=self.compute_dtype, **({"ragged": True} if is_ragged else {}))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "output_dim": self.output_dim,
            "input_dim": self.input_dim,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
            "mask_zero": self.mask_zero,
            "combiner": self.combiner,
        }

    def _looked_up_ids(self, ids: Any) -> NDArray[np.int64]:
        """The ids that `call` looks up for these ids."""
        is_dense = not isinstance(ids, tf.RaggedTensor | tf.SparseTensor)
        values = ids if is_dense else ids.flat_values if isinstance(ids, tf.RaggedTensor) else ids.values
        flat = np.asarray(values).astype(np.int64).reshape(-1)
        if self.combiner is None:
            return flat
        return (
            flat[(flat >= 0) & (flat != self.missing_id)]
            if is_dense and self.missing_id is not None
            else flat[flat >= 0]
        )

    def _look_up(self, flat: Any, ids: Any) -> Any:
        """The rows of `flat`, which are all ids of `ids`."""
        if placement.is_building() and self.embeddings is None:
            rows = tf.zeros([tf.size(flat), self.output_dim])
        elif self.is_on_ps:
            active = row_pulls.current_pulls()
            if active is None:
                raise ModelError(f"{self.name}: its rows lie on ps, so the model runs in the steps of a job only")
            rows = active.pull(self.table, flat, self.output_dim, ids, self._looked_up_ids)
        elif self.embeddings is not None:
            rows = tf.gather(tf.convert_to_tensor(self.embeddings), flat)
        elif self.held is not None:
            held_ids, held_rows = self.held
            wanted_ids = tf.cast(flat, tf.int64)
            indices = tf.clip_by_value(tf.searchsorted(held_ids, wanted_ids), 0, tf.shape(held_ids)[0] - 1)
            is_held = tf.gather(held_ids, indices) == wanted_ids
            rows = tf.where(is_held[:, tf.newaxis], tf.gather(held_rows, indices), 0.0)
        else:
            raise ModelError(
                f"{self.name}: expected input_dim, or a job with ps. Received: neither; "
                "use --distribution_strategy=ParameterServerStrategy"
            )
        return tf.cast(rows, self.compute_dtype)


@keras.saving.register_keras_serializable("elasticdl")
class SparseEmbedding(Embedding):
    """One vector for all ids of a record, as in the first ElasticDL's preprocessing: dense id 0 means none."""

    missing_id = 0

    def __init__(
        self,
        input_dim: int | None,
        output_dim: int,
        embeddings_initializer: Any = "uniform",
        combiner: str = "mean",
        **options: Any,
    ) -> None:
        super().__init__(output_dim, input_dim, embeddings_initializer, combiner=combiner, **options)


COMBINERS = ("sum", "mean", "sqrtn")


class IdBags(NamedTuple):
    """One-dimensional ids, and the record that each belongs to, in order."""

    ids: Any
    records: Any
    count: Any  # of the records

    @classmethod
    def from_ids(cls, ids: Any, missing: int | None) -> IdBags:
        """Ids below 0 are left out, as is `missing` among dense ones. Ragged and sparse ids have two dimensions."""
        if isinstance(ids, tf.RaggedTensor):
            _check_two_dimensions(ids.shape)
            flat, records, count = ids.values, ids.value_rowids(), ids.nrows()
        elif isinstance(ids, tf.SparseTensor):
            _check_two_dimensions(ids.shape)
            flat, records, count = ids.values, ids.indices[:, 0], ids.dense_shape[0]
        else:
            _check_two_dimensions(ids.shape)
            shape = tf.shape(ids, out_type=tf.int64)
            flat, count = tf.reshape(ids, [-1]), shape[0]
            records = tf.repeat(tf.range(count), shape[1])
            if missing is not None:
                return cls._filter(flat, records, count, (flat != missing) & (flat >= 0))
        return cls._filter(flat, records, count, flat >= 0)

    @classmethod
    def _filter(cls, ids: Any, records: Any, count: Any, keep: Any) -> IdBags:
        return cls(tf.boolean_mask(ids, keep), tf.boolean_mask(records, keep), count)


def combine_vectors(vectors: Any, bags: IdBags, combiner: str) -> Any:
    """One vector for each record; zeros for a record without ids."""
    sums = tf.math.unsorted_segment_sum(vectors, bags.records, bags.count)
    if combiner == "sum":
        return sums
    ones = tf.ones_like(bags.records, vectors.dtype)
    numbers = tf.math.unsorted_segment_sum(ones, bags.records, bags.count)[:, tf.newaxis]
    return tf.math.divide_no_nan(sums, tf.sqrt(numbers) if combiner == "sqrtn" else numbers)


def _check_two_dimensions(shape: Any) -> None:
    if shape.rank != 2:
        raise ModelError(
            f"embedding with a combiner: expected ids of two dimensions, records and their ids. Received: {shape}"
        )
