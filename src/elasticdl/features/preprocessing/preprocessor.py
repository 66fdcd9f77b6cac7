"""All transforms of a data set, bound to its statistics: raw columns in, a model's inputs out.

Saved as one JSON file beside checkpoints and exports.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from elasticdl import atomic
from elasticdl.errors import DataError, SpecError
from elasticdl.features.features_file import FeaturesFile
from elasticdl.features.layout import FIELD_BITS, FeatureLayout, IdField
from elasticdl.features.preprocessing import builder
from elasticdl.features.preprocessing.encoders import (
    AnyNumberEncoder,
    CrossEncoder,
    FieldEncoder,
    MissingIndicatorEncoder,
    NumberEncoder,
    SequenceEncoder,
)
from elasticdl.features.preprocessing.raw_columns import RawColumns
from elasticdl.features.preprocessing.target_encoding import TargetEncoder, TargetFolds, assign_folds
from elasticdl.features.statistics import ColumnKind, Statistics
from elasticdl.features.transform_specs import SequenceSpec, TargetEncodingSpec

PREPROCESSOR_FILE = "preprocessor.json"


class Preprocessor(BaseModel):
    """Computes fields of ids, numbers and sequences from raw columns.

    The number of a field is its index in `fields`. It never changes, because ids in embedding tables depend on it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    version: Literal[1] = 1
    label: str
    label_values: dict[str, int] = {}  # texts that stand for 0 and 1; empty: the label is 0 or 1 itself
    columns: dict[str, ColumnKind]  # the raw columns that are needed, in the order of the data
    fields: tuple[FieldEncoder, ...] = ()
    numbers: tuple[AnyNumberEncoder, ...] = ()
    sequences: tuple[SequenceEncoder, ...] = ()
    target_encoders: tuple[TargetEncoder, ...] = ()
    groups: dict[str, tuple[str, ...]] = {}

    @classmethod
    def build(
        cls,
        features_file: FeaturesFile,
        statistics: Statistics,
        where: str = "features.yaml",
        label_values: Mapping[str, int] | None = None,
    ) -> Preprocessor:
        features_file.check_against(statistics, where)
        fields, numbers = _build_column_encoders(features_file, statistics)
        fields += [builder.build_cross_encoder(spec, statistics) for spec in features_file.crosses]
        sequences, target_encoders = [], []
        for name, specs in features_file.columns.items():
            for spec in specs:
                if isinstance(spec, SequenceSpec):
                    sequences.append(builder.build_sequence_encoder(name, spec, tuple(fields)))
                elif isinstance(spec, TargetEncodingSpec):
                    target_encoders.append(builder.build_target_encoder(name, spec, statistics))
        if not fields and not numbers and not sequences:
            raise SpecError(f"{where}: every column is dropped; there is nothing to learn from")
        return cls(
            label=features_file.label,
            label_values=dict(label_values or {}),
            columns={name: statistics.columns[name].kind for name in features_file.used_columns},
            fields=tuple(fields),
            numbers=tuple(numbers),
            sequences=tuple(sequences),
            target_encoders=tuple(target_encoders),
            groups=dict(features_file.groups),
        )

    @cached_property
    def layout(self) -> FeatureLayout:
        group_by_column = {column: group for group, columns in self.groups.items() for column in columns}
        return FeatureLayout(
            fields=tuple(
                IdField(
                    name=field.name,
                    size=field.size,
                    group="" if isinstance(field, CrossEncoder) else group_by_column.get(field.column, ""),
                )
                for field in self.fields
            ),
            numbers=(
                *(number.name for number in self.numbers),
                *(name for encoder in self.target_encoders for name in encoder.names),
            ),
            sequences={sequence.name: sequence.like for sequence in self.sequences},
        )

    def encode(self, batch: pa.RecordBatch, folds: TargetFolds | None = None) -> dict[str, NDArray[Any]]:
        """Returns `ids`, `numbers` and each sequence, as the layout says. Rows that are trained on need `folds`."""
        columns = RawColumns(batch)
        ids = self._encode_ids(columns)
        plain = len(self.numbers)
        numbers = np.empty((len(columns), plain + 2 * len(self.target_encoders)), np.float32)
        for index, number in enumerate(self.numbers):
            numbers[:, index] = number.encode(columns)
        row_folds = assign_folds(ids) if folds is not None and self.target_encoders else None
        for index, encoder in enumerate(self.target_encoders):
            if folds is None or row_folds is None:
                pairs = encoder.encode(columns)
            else:
                pairs = folds.encode(encoder, columns, row_folds)
            numbers[:, plain + 2 * index : plain + 2 * index + 2] = pairs
        names = self.layout.field_names
        first_own = len(self.fields)  # sequences with ids of their own come after all fields
        features: dict[str, NDArray[Any]] = {"ids": ids, "numbers": numbers}
        for index, sequence in enumerate(self.sequences):
            field = names.index(sequence.like) if sequence.like else first_own + index
            features[sequence.name] = sequence.encode(columns, field)
        return features

    def encode_ids(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        """Returns `ids` alone."""
        return self._encode_ids(RawColumns(batch))

    def _encode_ids(self, columns: RawColumns) -> NDArray[np.int64]:
        ids = np.empty((len(columns), len(self.fields)), np.int64)
        for index, field in enumerate(self.fields):
            ids[:, index] = field.encode(columns) + (index << FIELD_BITS)
        return ids

    def read_labels(self, batch: pa.RecordBatch) -> NDArray[np.float32]:
        """Returns the labels. Raises DataError if one is missing or stands for neither 0 nor 1."""
        if self.label_values:
            return self._map_labels(batch)
        labels = RawColumns(batch).numbers(self.label)
        is_wrong = ~np.isin(labels, (0.0, 1.0))
        if is_wrong.any():
            first = int(np.argmax(is_wrong))
            value = "nothing" if np.isnan(labels[first]) else f"{labels[first]:g}"
            raise DataError(f"label {self.label!r}: expected 0 or 1, received {value}")
        return labels.astype(np.float32)

    def _map_labels(self, batch: pa.RecordBatch) -> NDArray[np.float32]:
        texts = RawColumns(batch).texts(self.label, ColumnKind.TEXT)
        distinct = [str(text).strip() for text in texts.distinct.to_pylist()]
        unknown = [text for text in distinct if text not in self.label_values]
        if unknown or texts.is_missing.any():
            received = repr(unknown[0]) if unknown else "nothing"
            expected = ", ".join(map(repr, self.label_values))
            raise DataError(
                f"label {self.label!r}: expected one of {expected}, received {received}; name it in its values"
            )
        return np.array([self.label_values[text] for text in distinct], np.float32)[texts.codes]

    def read_weights(self, batch: pa.RecordBatch, name: str) -> NDArray[np.float32]:
        """Returns the weight of each row. Raises DataError if one is missing, negative or not finite."""
        weights = RawColumns(batch).numbers(name)
        if not (np.isfinite(weights) & (weights >= 0)).all():
            raise DataError(f"weight {name!r}: expected finite numbers of 0 and more in every row")
        return weights.astype(np.float32)

    @cached_property
    def column_types(self) -> dict[str, pa.DataType]:
        """The types to read the raw columns as: numbers as numbers, everything else as text."""
        types = {
            name: pa.float64() if kind is ColumnKind.NUMBER else pa.string() for name, kind in self.columns.items()
        }
        return {self.label: pa.string() if self.label_values else pa.float64(), **types}

    def save(self, directory: Path) -> None:
        atomic.write_file(directory / PREPROCESSOR_FILE, self.model_dump_json() + "\n")

    @classmethod
    def load(cls, directory: Path) -> Preprocessor:
        path = directory / PREPROCESSOR_FILE
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, ValidationError, ValueError) as exc:
            raise DataError(f"{path}: expected a preprocessor of this version: {str(exc).splitlines()[0]}") from exc


def _build_column_encoders(
    features_file: FeaturesFile, statistics: Statistics
) -> tuple[list[FieldEncoder], list[AnyNumberEncoder]]:
    """Builds fields and numbers. A transform that a column has twice gets a number in its name the second time."""
    fields: list[FieldEncoder] = []
    numbers: list[AnyNumberEncoder] = []
    for column, specs in features_file.columns.items():
        for index, spec in enumerate(specs):
            if isinstance(spec, SequenceSpec | TargetEncodingSpec):
                continue
            repeats = sum(earlier.name == spec.name for earlier in specs[:index])
            name = f"{column}.{spec.name}-{repeats + 1}" if repeats else ""
            for encoder in builder.build_encoders(column, spec, statistics, name):
                if isinstance(encoder, NumberEncoder | MissingIndicatorEncoder):
                    numbers.append(encoder)
                else:
                    fields.append(encoder)
    return fields, numbers
