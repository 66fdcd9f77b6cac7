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
    NumberEncoder,
    SequenceEncoder,
)
from elasticdl.features.preprocessing.encoders import MissingIndicatorEncoder as _MissingEncoder
from elasticdl.features.preprocessing.raw_columns import RawColumns
from elasticdl.features.preprocessing.target_encoding import TargetEncoder, TargetFolds, assign_folds
from elasticdl.features.statistics import ColumnKind, Statistics
from elasticdl.features.transform_specs import SequenceSpec, TargetEncodingSpec

PREPROCESSOR_FILE = "front.json"


class Preprocessor(BaseModel):
    """The number of a field is its place; it never changes, for ids of tables depend on it."""

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    version: Literal[1] = 1
    label: str
    label_values: dict[str, int] = {}  # texts that stand for 0 and 1; empty: the label is 0 or 1 itself
    columns: dict[str, ColumnKind]  # raw ones that are needed, in the order of the data
    fields: tuple[FieldEncoder, ...] = ()
    numbers: tuple[AnyNumberEncoder, ...] = ()
    sequences: tuple[SequenceEncoder, ...] = ()
    rates: tuple[TargetEncoder, ...] = ()
    groups: dict[str, tuple[str, ...]] = {}

    @classmethod
    def build(
        cls,
        asked: FeaturesFile,
        statistics: Statistics,
        where: str = "features.yaml",
        label_values: Mapping[str, int] | None = None,
    ) -> Preprocessor:
        asked.check_against(statistics, where)
        fields: list[FieldEncoder] = []
        numbers: list[AnyNumberEncoder] = []
        for name, treatments in asked.columns.items():
            words = [treatment.name for treatment in treatments]
            for place, treatment in enumerate(treatments):
                if isinstance(treatment, SequenceSpec | TargetEncodingSpec):
                    continue
                before = words[:place].count(treatment.name)
                own = f"{name}.{treatment.name}-{before + 1}" if before else ""
                for made in builder.build_encoders(name, treatment, statistics, own):
                    if isinstance(made, NumberEncoder | _MissingEncoder):
                        numbers.append(made)
                    else:
                        fields.append(made)
        fields += [builder.build_cross_encoder(one, statistics) for one in asked.crosses]
        sequences = [
            builder.build_sequence_encoder(name, treatment, tuple(fields))
            for name, treatments in asked.columns.items()
            for treatment in treatments
            if isinstance(treatment, SequenceSpec)
        ]
        rates = [
            builder.build_target_encoder(name, treatment, statistics)
            for name, treatments in asked.columns.items()
            for treatment in treatments
            if isinstance(treatment, TargetEncodingSpec)
        ]
        if not fields and not numbers and not sequences:
            raise SpecError(f"{where}: every column is dropped; there is nothing to learn from")
        columns = {name: statistics.columns[name].kind for name in asked.used_columns}
        return cls(
            label=asked.label,
            label_values=dict(label_values or {}),
            columns=columns,
            fields=tuple(fields),
            numbers=tuple(numbers),
            sequences=tuple(sequences),
            rates=tuple(rates),
            groups=dict(asked.groups),
        )

    @cached_property
    def layout(self) -> FeatureLayout:
        group_of = {column: group for group, columns in self.groups.items() for column in columns}
        return FeatureLayout(
            fields=tuple(
                IdField(
                    name=one.name,
                    size=one.size,
                    group="" if isinstance(one, CrossEncoder) else group_of.get(one.column, ""),
                )
                for one in self.fields
            ),
            numbers=(*(one.name for one in self.numbers), *(name for one in self.rates for name in one.names)),
            sequences={one.name: one.like for one in self.sequences},
        )

    def encode(self, batch: pa.RecordBatch, folds: TargetFolds | None = None) -> dict[str, NDArray[Any]]:
        """`ids`, `numbers` and each sequence, as the layout says. `folds`: of rows that are trained on."""
        columns = RawColumns(batch)
        ids = self._ids(columns)
        plain = len(self.numbers)
        numbers = np.empty((len(columns), plain + 2 * len(self.rates)), np.float32)
        for place, number in enumerate(self.numbers):
            numbers[:, place] = number.encode(columns)
        dealt = assign_folds(ids) if folds is not None and self.rates else None
        for place, rate in enumerate(self.rates):
            made = rate.encode(columns) if folds is None or dealt is None else folds.encode(rate, columns, dealt)
            numbers[:, plain + 2 * place : plain + 2 * place + 2] = made
        names = self.layout.field_names
        own = len(self.fields)  # sequences with ids of their own come after all fields
        found: dict[str, NDArray[Any]] = {"ids": ids, "numbers": numbers}
        for extra, one in enumerate(self.sequences):
            found[one.name] = one.encode(columns, names.index(one.like) if one.like else own + extra)
        return found

    def encode_ids(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        """`ids` alone."""
        return self._ids(RawColumns(batch))

    def _ids(self, columns: RawColumns) -> NDArray[np.int64]:
        ids = np.empty((len(columns), len(self.fields)), np.int64)
        for place, field in enumerate(self.fields):
            ids[:, place] = field.encode(columns) + (place << FIELD_BITS)
        return ids

    def read_labels(self, batch: pa.RecordBatch) -> NDArray[np.float32]:
        """DataError where one is missing, or stands for neither 0 nor 1."""
        if self.label_values:
            return self._mapped_labels(batch)
        found = RawColumns(batch).numbers(self.label)
        wrong = ~np.isin(found, (0.0, 1.0))
        if wrong.any():
            first = int(np.argmax(wrong))
            value = "nothing" if np.isnan(found[first]) else f"{found[first]:g}"
            raise DataError(f"label {self.label!r}: expected 0 or 1, received {value}")
        return found.astype(np.float32)

    def _mapped_labels(self, batch: pa.RecordBatch) -> NDArray[np.float32]:
        texts = RawColumns(batch).texts(self.label, ColumnKind.TEXT)
        distinct = [str(text).strip() for text in texts.distinct.to_pylist()]
        unknown = [text for text in distinct if text not in self.label_values]
        if unknown or texts.is_missing.any():
            received = repr(unknown[0]) if unknown else "nothing"
            known = ", ".join(map(repr, self.label_values))
            raise DataError(
                f"label {self.label!r}: expected one of {known}, received {received}; name it in its values"
            )
        return np.array([self.label_values[text] for text in distinct], np.float32)[texts.codes]

    def read_weights(self, batch: pa.RecordBatch, name: str) -> NDArray[np.float32]:
        """Of each row. DataError where one is missing, negative or not finite."""
        found = RawColumns(batch).numbers(name)
        if not (np.isfinite(found) & (found >= 0)).all():
            raise DataError(f"weight {name!r}: expected finite numbers of 0 and more in every row")
        return found.astype(np.float32)

    @cached_property
    def column_types(self) -> dict[str, pa.DataType]:
        """How to read the raw columns from text: numbers as such, all else as it stands."""
        kinds = {
            name: pa.float64() if kind is ColumnKind.NUMBER else pa.string() for name, kind in self.columns.items()
        }
        return {self.label: pa.string() if self.label_values else pa.float64(), **kinds}

    def save(self, directory: Path) -> None:
        atomic.write_file(directory / PREPROCESSOR_FILE, self.model_dump_json() + "\n")

    @classmethod
    def load(cls, directory: Path) -> Preprocessor:
        path = directory / PREPROCESSOR_FILE
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, ValidationError, ValueError) as exc:
            raise DataError(f"{path}: expected a front of this version: {str(exc).splitlines()[0]}") from exc
