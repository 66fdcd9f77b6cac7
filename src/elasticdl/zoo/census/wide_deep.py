"""Wide & Deep in Keras (Cheng et al., DLRS 2016) on UCI's Adult data set: who earns more than 50,000 dollars a year.

python -m elasticdl.zoo.census.data adult.data adult.test data
elasticdl train --model_zoo=src/elasticdl/zoo --model_def=census.wide_deep.forward --training_data=data/train.csv \
    --validation_data=data/test.csv --model_params="statistics=data/statistics.json" --num_epochs=5

All transforms of columns are in the model: the SavedModel takes the columns as text, as they are in the files.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import keras
import tensorflow as tf

from elasticdl.data.dataset import Metadata
from elasticdl.keras import Embedding
from elasticdl.keras.features import (
    ConcatenateWithOffset,
    Cross,
    Discretization,
    Hashing,
    IndexLookup,
    Normalizer,
    ToNumber,
)
from elasticdl.model.mode import Mode
from elasticdl.zoo.census.data import NUMBERS

WORDS = ("workclass", "education", "marital_status", "occupation", "relationship", "race", "sex")
HASHED = {"native_country": 64}
CROSSES = {("education", "occupation"): 1000, ("marital_status", "sex"): 100}
RANGES = {"age": 10, "hours_per_week": 8, "capital_gain": 50, "capital_loss": 50, "education_num": 16}
RICH = ">50K"


def forward(
    statistics: str = "data/statistics.json", columns: int = 8, hidden: tuple[int, ...] = (64, 32), dropout: float = 0.1
) -> Any:
    raw = {name: keras.Input((), dtype="string", name=name) for name in (*NUMBERS, *WORDS, *HASHED)}
    numbers = {name: ToNumber("float32", 0.0)(raw[name]) for name in NUMBERS}
    ids, bins = _build_ids(raw, numbers, statistics)
    all_ids = ConcatenateWithOffset([0, *accumulate(bins)][:-1])(ids)
    wide = Embedding(1, sum(bins), "zeros", combiner="sum", name="wide")(all_ids)
    vectors = keras.layers.Flatten()(Embedding(columns, sum(bins), name="deep")(all_ids))
    scaled = [Normalizer.from_statistics(name, statistics=statistics)(numbers[name]) for name in NUMBERS]
    deep = keras.layers.Concatenate()([vectors, *(keras.layers.Reshape((1,))(number) for number in scaled)])
    for size in hidden:
        deep = keras.layers.Dropout(dropout)(keras.layers.Dense(size, activation="relu")(deep))
    score = keras.layers.Add()([wide, keras.layers.Dense(1)(deep)])
    return keras.Model(raw, keras.layers.Reshape(())(score))


def _build_ids(raw: dict[str, Any], numbers: dict[str, Any], statistics: str) -> tuple[list[Any], list[int]]:
    """Returns the ids of words, ranges, hashed words and crosses, and the number of bins of each."""
    ids, bins = [], []
    for name in WORDS:
        lookup = IndexLookup.from_statistics(name, statistics=statistics)
        ids.append(lookup(raw[name]))
        bins.append(lookup.num_bins())
    for name, quantiles in RANGES.items():
        ranges = Discretization.from_statistics(name, quantiles=quantiles, statistics=statistics)
        ids.append(ranges(numbers[name]))
        bins.append(ranges.num_bins())
    for name, size in HASHED.items():
        ids.append(Hashing(size)(raw[name]))
        bins.append(size)
    for names, size in CROSSES.items():
        ids.append(Cross(size)([raw[name] for name in names]))
        bins.append(size)
    return ids, bins


def loss(labels: Any, predictions: Any) -> Any:
    return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=predictions)


def optimizer(lr: float = 0.001) -> Any:
    return keras.optimizers.Adam(lr)


def dataset_fn(dataset: Any, mode: Mode, metadata: Metadata) -> Any:
    def example(record: dict[str, Any]) -> Any:
        features = {name: record[name] for name in (*NUMBERS, *WORDS, *HASHED)}
        if mode is Mode.PREDICTION:
            return features
        return features, tf.cast(record["income"] == RICH, tf.float32)

    return dataset.map(example).shuffle(50_000) if mode is Mode.TRAINING else dataset.map(example)


def eval_metrics_fn() -> dict[str, Any]:
    return {
        "accuracy": keras.metrics.BinaryAccuracy(threshold=0.0),
        "auc": keras.metrics.AUC(from_logits=True),
    }
