"""What the layers of Keras give is what the definitions give, to the bit; TensorFlow is the oracle of fingerprints."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elasticdl.errors import DataError
from elasticdl.features import (
    ConcatenateWithOffset,
    Cross,
    DateParts,
    Discretization,
    Hashing,
    IndexLookup,
    LogRound,
    Normalizer,
    RoundIdentity,
    Sequence,
    ToNumber,
    ToRagged,
    ToSparse,
    Transform,
)
from elasticdl.features.statistics import ColumnKind, ColumnStatistics, Statistics
from elasticdl.features.transforms import ALL_TRANSFORMS, fingerprint
from elasticdl.features.transforms.date_parts import PARTS
from tests.properties import examples
from tests.unit.features import hard_columns
from tests.unit.features.hard_columns import Column, assert_same, texts

pytest.importorskip("tensorflow")
layers = pytest.importorskip("elasticdl.keras.features")
from elasticdl.keras.runtime import keras, tf  # noqa: E402

# Keras asks its variables for an array in an old way.
OLD = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")


def tensor(values: Any) -> Any:
    return tf.constant(values, tf.string) if values.dtype == object else tf.constant(values)


def check(transformation: Transform, column: Column) -> None:
    assert_same(transformation(tensor(column.square)), transformation(column.square))
    ragged = tf.RaggedTensor.from_row_splits(tensor(column.flat), column.splits)
    assert_same(transformation(ragged).flat_values, transformation(column.ragged).values)
    if not isinstance(transformation, DateParts):
        sparse = column.sparse
        result = transformation(tf.SparseTensor(sparse.indices, tensor(sparse.values), sparse.shape))
        assert_same(result.values, transformation(sparse).values)
    assert_same(
        traced(transformation, tensor(column.square).dtype)(tensor(column.square)), transformation(column.square)
    )


@cache
def traced(transformation: Transform, dtype: Any) -> Any:
    """As a graph, which is optimized."""
    layer = layers.LAYERS[type(transformation)].from_definition(transformation)
    return tf.function(layer, input_signature=[tf.TensorSpec([None, 2], dtype)])


@pytest.mark.parametrize("transformation", hard_columns.NUMBER_TRANSFORMS, ids=str)
@settings(max_examples=examples(10))
@given(column=hard_columns.NUMBER_COLUMNS)
def test_transforms_of_numbers_compute_the_same_bits(transformation: Transform, column: Column) -> None:
    check(transformation, column)


@pytest.mark.parametrize("transformation", hard_columns.WHOLE_NUMBER_TRANSFORMS, ids=str)
@settings(max_examples=examples(8))
@given(column=hard_columns.WHOLE_COLUMNS)
def test_transforms_of_whole_numbers_compute_the_same_bits(transformation: Transform, column: Column) -> None:
    check(transformation, column)


@pytest.mark.parametrize("transformation", hard_columns.TEXT_TRANSFORMS, ids=str)
@settings(max_examples=examples(10))
@given(column=hard_columns.TEXT_COLUMNS)
def test_transforms_of_text_compute_the_same_bits(transformation: Transform, column: Column) -> None:
    check(transformation, column)


@settings(max_examples=examples(20))
@given(column=hard_columns.TEXT_COLUMNS)
def test_a_cross_of_text_and_whole_numbers(column: Column) -> None:
    numbers = np.arange(len(column.flat)) * -(7**20)

    assert_same(hard_columns.CROSS([tensor(column.flat), tensor(numbers)]), hard_columns.CROSS([column.flat, numbers]))
    ragged = [tf.RaggedTensor.from_row_splits(tensor(each), column.splits) for each in (column.flat, numbers)]
    assert_same(hard_columns.CROSS(ragged).flat_values, hard_columns.CROSS([column.flat, numbers]))


def test_a_text_of_any_length_has_the_fingerprint_that_tensorflow_gives_it() -> None:
    random_numbers = random.Random(1)
    pieces = [bytes(random_numbers.randrange(256) for _ in range(length)) for length in (*range(301), *range(301))]
    random_numbers.shuffle(pieces)

    for bins in (3, 10**6, 2**62 + 1):
        assert_same(fingerprint.hash_buckets(pa.array(pieces), bins), tf.strings.to_hash_bucket_fast(pieces, bins))


@settings(max_examples=examples(50))
@given(st.lists(st.text(), max_size=20))
def test_any_text_has_the_fingerprint_that_tensorflow_gives_it(values: list[str]) -> None:
    hashes = fingerprint.hash_buckets(pa.array(values, pa.string()), 2**62)

    assert_same(hashes, tf.strings.to_hash_bucket_fast(tf.constant(values, tf.string), 2**62))


NUMBERS = (
    st.floats().map(repr) | st.floats(width=32).map(lambda number: f" {number:.9g}\t") | st.sampled_from(["", " "])
)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@settings(max_examples=examples(40))
@given(values=st.lists(NUMBERS, max_size=9))
@example(["1.", ".5", "+1e5", "1E-400", "-1e400", "007", "Infinity", "-inf", "NaN", "1e-40", "16777217"])
@example(["0.1000000014901161193847656251", "1.17549435e-38", "3.4028235677973366e38", "4.9e-324"])
def test_text_is_read_alike_as_floats(dtype: str, values: list[str]) -> None:
    column = np.array(values, object)

    assert_same(ToNumber(dtype, -1)(tensor(column)), ToNumber(dtype, -1)(column))


@pytest.mark.parametrize(("dtype", "bits"), [("int32", 31), ("int64", 63)])
@settings(max_examples=examples(20))
@given(data=st.data())
def test_text_is_read_alike_as_whole_numbers(dtype: str, bits: int, data: st.DataObject) -> None:
    numbers = st.integers(-(2**bits), 2**bits - 1)
    column = np.array(data.draw(st.lists(numbers.map(str) | numbers.map("{:+d}".format) | st.just(""))), object)

    assert_same(ToNumber(dtype, 5)(tensor(column)), ToNumber(dtype, 5)(column))


@pytest.mark.parametrize("text", ["0x10", "1_0", "１", "1e", "+-1", "one", "1 2", "-nan", "\xa01"])
def test_text_that_is_no_number_is_refused_by_both(text: str) -> None:
    for dtype in ("float32", "int64"):
        with pytest.raises(DataError, match="expected numbers of"):
            ToNumber(dtype, 0)([text])
        with pytest.raises(tf.errors.InvalidArgumentError, match="expected numbers of"):
            ToNumber(dtype, 0)(tf.constant([text]))


@settings(max_examples=examples(20))
@given(values=st.lists(st.datetimes(), max_size=6), form=st.sampled_from([None, "%d.%m.%Y %H:%M", "%Y%m%d"]))
def test_dates_are_read_alike(values: list[Any], form: str | None) -> None:
    column = np.array([each.isoformat() if form is None else _written(each, form) for each in values] + [""], object)

    parts = DateParts(PARTS, form)(column)
    assert_same(DateParts(PARTS, form)(tensor(column)), parts)
    expected = [each.timetuple() for each in values]
    assert parts[:-1, 0].tolist() == [each.tm_year for each in expected]
    assert parts[:-1, 3].tolist() == [each.tm_yday - 1 for each in expected]
    assert parts[:-1, 4].tolist() == [each.tm_wday for each in expected]


def _written(date: Any, form: str) -> str:
    return str(date.strftime(form.replace("%Y", f"{date.year:04d}")))


@pytest.mark.parametrize("text", ["2015-02-29", "2015-13-01", "2015-01-01 24:00", "yesterday", "2015-1-1"])
def test_text_that_is_no_date_is_refused_by_both(text: str) -> None:
    with pytest.raises(DataError, match="expected dates as ISO 8601"):
        DateParts("day")([text])
    with pytest.raises(tf.errors.InvalidArgumentError, match="expected dates as ISO 8601"):
        DateParts("day")(tf.constant([text]))


@settings(max_examples=examples(30))
@given(column=hard_columns.TEXT_COLUMNS)
def test_text_is_split_alike(column: Column) -> None:
    for transformation in (
        ToRagged(),
        ToRagged(sep="|", ignore_value="a"),
        Sequence("|", 2),
        Sequence(",", 1, "first"),
    ):
        result, expected = transformation(tensor(column.square)), transformation(column.square)
        assert texts(result.values) == texts(expected.values)
        assert_same(result.row_splits, expected.splits)
    result, expected = ToSparse()(tensor(column.square)), ToSparse()(column.square)
    assert texts(result.values) == texts(expected.values)
    assert_same(result.indices, expected.indices)


@settings(max_examples=examples(15))
@given(column=hard_columns.WHOLE_COLUMNS)
def test_dense_numbers_become_ragged_and_sparse(column: Column) -> None:
    result, expected = ToRagged()(tensor(column.square)), ToRagged()(column.square)
    assert_same(result.values, expected.values)
    assert_same(result.row_splits, expected.splits)
    result, expected = ToSparse(7)(tensor(column.square)), ToSparse(7)(column.square)
    assert_same(result.values, expected.values)
    assert_same(result.indices, expected.indices)


@settings(max_examples=examples(10))
@given(column=hard_columns.columns(hard_columns.WHOLES, np.int64))
def test_columns_are_concatenated_with_offsets(column: Column) -> None:
    joined = ConcatenateWithOffset([3, 100])

    assert_same(joined([tensor(column.square)] * 2), joined([column.square] * 2))
    result = joined([tf.RaggedTensor.from_row_splits(tensor(column.flat), column.splits)] * 2)
    expected = joined([column.ragged] * 2)
    assert_same(result.values, expected.values)
    assert_same(result.row_splits, expected.splits)
    sparse = column.sparse
    result = joined([tf.SparseTensor(sparse.indices, tensor(sparse.values), sparse.shape)] * 2)
    expected = joined([sparse] * 2)
    assert_same(result.values, expected.values)
    assert_same(result.indices, expected.indices)


CONFIGURED = [
    *hard_columns.WHOLE_NUMBER_TRANSFORMS,
    ToRagged("|", "x"),
    ToSparse(5),
    Sequence("|", 3),
    ConcatenateWithOffset([1]),
    Cross(9),
]


@pytest.mark.parametrize("transformation", CONFIGURED, ids=str)
def test_a_layer_is_made_again_from_its_config(transformation: Transform) -> None:
    layer = layers.LAYERS[type(transformation)].from_definition(transformation)

    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))

    assert again.definition == transformation
    assert again.name == layer.name


def test_every_transformation_has_a_layer() -> None:
    assert set(layers.LAYERS) == set(ALL_TRANSFORMS)
    assert all(getattr(layers, kind.__name__).definition_class is kind for kind in ALL_TRANSFORMS)


@OLD
def test_a_model_carries_its_transformations(tmp_path: Path) -> None:
    text, number = keras.Input((1,), dtype="string", name="text"), keras.Input((1,), name="number")
    ids = ConcatenateWithOffset([0, 10, 13, 63])(
        [Hashing(10)(text), IndexLookup(["x", "y"])(text), Cross(50)([text, text]), Discretization([0, 1])(number)]
    )
    pooled = layers.SparseEmbedding(8, 3, combiner="sum")(Hashing(7)(Sequence("|", 3)(text)))
    dense = keras.layers.Dense(2)(keras.layers.Concatenate()([Normalizer(1, 2)(number), pooled]))
    model = keras.Model({"text": text, "number": number}, [ids, dense])
    rows = {"text": tf.constant([["x"], ["q|y|x|z"]]), "number": tf.constant([[0.5], [3.0]])}
    expected = model(rows)

    model.save(tmp_path / "model.keras")
    model.export(tmp_path / "saved", verbose=False)

    assert ids.shape == (None, 4) and ids.dtype == "int64"
    again = keras.models.load_model(tmp_path / "model.keras")(rows)
    saved = tf.saved_model.load(tmp_path / "saved")
    for result in (again, saved.serve(rows)):
        assert_same(result[0], expected[0])
        assert_same(result[1], expected[1])
    columns = {name: values.numpy() for name, values in rows.items()}
    assert_same(expected[0][:, 0], Hashing(10)(columns["text"])[:, 0])
    assert_same(expected[0][:, 1] - 10, IndexLookup(["x", "y"])(columns["text"])[:, 0])


def test_a_definition_works_inside_a_dataset(recwarn: pytest.WarningsRecorder) -> None:
    lookup = IndexLookup(["x", "y"])

    results = tf.data.Dataset.from_tensor_slices(["y", "z"]).map(lambda value: lookup(value))

    assert list(results.as_numpy_iterator()) == [1, 2]


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_an_embedding_is_that_of_tensorflow(combiner: str) -> None:
    layer = layers.SparseEmbedding(5, 2, combiner=combiner)
    ids = tf.sparse.from_dense(tf.constant([[1, 3, 0], [0, 0, 0], [4, 0, 4]], tf.int64))

    result = layer(ids)

    weights = tf.convert_to_tensor(layer.embeddings)
    np.testing.assert_allclose(result, tf.nn.safe_embedding_lookup_sparse(weights, ids, combiner=combiner), rtol=1e-6)
    np.testing.assert_allclose(layer(tf.sparse.to_dense(ids)), result, rtol=1e-6)


@OLD
def test_feature_columns_share_one_table(tmp_path: Path) -> None:
    age = layers.categorical_column("age", Discretization([18, 60]))
    tags = layers.categorical_column("tags", layers.Hashing(10))
    both = layers.concatenated_categorical_column([age, tags])
    rows = {"age": tf.constant([[17], [70]]), "tags": tf.ragged.constant([["a", "b"], []])}

    assert (both.name, both.num_buckets) == ("age_C_tags", 13)
    hashed = Hashing(10)(["a", "b"])
    assert both.ids(rows).to_list() == [[0, *(hashed + 3).tolist()], [2]]

    layer = layers.embedding_column(both, dimension=4, combiner="sum")
    table = tf.convert_to_tensor
    result = layer(rows)
    weights = table(layer.embedding.embeddings).numpy()
    np.testing.assert_allclose(result[1], weights[2], rtol=1e-6)
    np.testing.assert_allclose(result[0], weights[[0, *(hashed + 3)]].sum(0), rtol=1e-6)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert again.column.num_buckets == 13 and again.dimension == 4

    age_input, tag = keras.Input((1,), name="age"), keras.Input((1,), dtype="string", name="tags")
    model = keras.Model({"age": age_input, "tags": tag}, layer({"age": age_input, "tags": tag}))
    model.save(tmp_path / "model.keras")
    plain = {"age": tf.constant([[17.0]]), "tags": tf.constant([["a"]])}
    assert_same(keras.models.load_model(tmp_path / "model.keras")(plain), model(plain))


def test_invalid_feature_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="a transform that has a number of bins"):
        layers.categorical_column("age", Normalizer(0, 1))
    with pytest.raises(ValueError, match="expected categorical columns, one or more"):
        layers.concatenated_categorical_column([])
    layer = layers.embedding_column(layers.categorical_column("age", RoundIdentity(9)), 2)
    with pytest.raises(ValueError, match=r"expected a dict with age. Missing: age"):
        layer.call({"other": tf.constant([1])})


@pytest.mark.parametrize(
    ("transformation", "values", "complaint"),
    [
        (Hashing(3), tf.constant([1.5]), "expected text or whole numbers. Received: float32"),
        (Sequence(",", 2), tf.constant([1]), "expected a column of text"),
        (ToSparse(), tf.ragged.constant([[1]]), "expected a dense column"),
        (ConcatenateWithOffset(), [tf.constant(["a"])], "expected whole numbers"),
        (ConcatenateWithOffset([1]), [tf.constant([1])] * 2, "expected 1 columns, as many as offsets. Received: 2"),
        (Cross(3), tf.constant([1]), "a list of two or more columns"),
    ],
)
def test_columns_that_do_not_fit_are_refused(transformation: Transform, values: Any, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        transformation(values)


def test_layers_are_made_from_statistics_and_take_plain_columns() -> None:
    number = ColumnStatistics(kind=ColumnKind.NUMBER, missing=0, distinct=3, maximum=100)
    statistics = Statistics(source="made up", rows=3, columns={"I1": number})

    layer = layers.LogRound.from_statistics("I1", base=10, statistics=statistics, name="size")

    assert (layer.definition, layer.name) == (LogRound(3, base=10), "size")
    assert layer([1.0, 100.0, None]).numpy().tolist() == [0, 2, 0]
    assert layers.Hashing(3)(pa.array(["A", None])).numpy().tolist() == [1, Hashing(3)([""])[0]]
    assert layers.Hashing(3)([["A", "B"], []]).to_list() == [[1, 0], []]
    assert layers.Discretization([0]).num_bins() == 2 and layers.IndexLookup(["a"]).num_bins() == 2
