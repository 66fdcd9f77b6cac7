"""All treatments of a data set, bound to its statistics: raw columns in, what a model takes out.

It is one JSON file, front.json, that travels with checkpoints and exports.
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

from elasticdl import replacement
from elasticdl.errors import DataError, SpecError
from elasticdl.features import binding
from elasticdl.features.encoders import AnyNumberEncoder, CrossEncoder, FieldEncoder, NumberEncoder, SequenceEncoder
from elasticdl.features.encoders import MissingEncoder as _MissingEncoder
from elasticdl.features.file import FeaturesFile
from elasticdl.features.layout import FIELD_BITS, Field, Layout
from elasticdl.features.rates import Folds, RateEncoder, fold_of
from elasticdl.features.raw import Columns
from elasticdl.features.statistics import Kind, Statistics
from elasticdl.features.treatments import Clicked, Sequence

FILE = "front.json"


class Front(BaseModel):
    """The number of a field is its place; it never changes, for ids of tables depend on it."""

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    version: Literal[1] = 1
    label: str
    label_values: dict[str, int] = {}  # texts that stand for 0 and 1; empty: the label is 0 or 1 itself
    columns: dict[str, Kind]  # raw ones that are needed, in the order of the data
    fields: tuple[FieldEncoder, ...] = ()
    numbers: tuple[AnyNumberEncoder, ...] = ()
    sequences: tuple[SequenceEncoder, ...] = ()
    rates: tuple[RateEncoder, ...] = ()
    groups: dict[str, tuple[str, ...]] = {}

    @classmethod
    def build(
        cls,
        asked: FeaturesFile,
        statistics: Statistics,
        where: str = "features.yaml",
        label_values: Mapping[str, int] | None = None,
    ) -> Front:
        asked.check_against(statistics, where)
        fields: list[FieldEncoder] = []
        numbers: list[AnyNumberEncoder] = []
        for name, treatments in asked.columns.items():
            words = [treatment.word for treatment in treatments]
            for place, treatment in enumerate(treatments):
                if isinstance(treatment, Sequence | Clicked):
                    continue
                before = words[:place].count(treatment.word)
                own = f"{name}.{treatment.word}-{before + 1}" if before else ""
                for made in binding.bind(name, treatment, statistics, own):
                    if isinstance(made, NumberEncoder | _MissingEncoder):
                        numbers.append(made)
                    else:
                        fields.append(made)
        fields += [binding.cross(one, statistics) for one in asked.crosses]
        sequences = [
            binding.sequence(name, treatment, tuple(fields))
            for name, treatments in asked.columns.items()
            for treatment in treatments
            if isinstance(treatment, Sequence)
        ]
        rates = [
            binding.rates(name, treatment, statistics)
            for name, treatments in asked.columns.items()
            for treatment in treatments
            if isinstance(treatment, Clicked)
        ]
        if not fields and not numbers and not sequences:
            raise SpecError(f"{where}: every column is dropped; there is nothing to learn from")
        columns = {name: statistics.columns[name].kind for name in asked.used}
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
    def layout(self) -> Layout:
        group_of = {column: group for group, columns in self.groups.items() for column in columns}
        return Layout(
            fields=tuple(
                Field(
                    name=one.name,
                    size=one.size,
                    group="" if isinstance(one, CrossEncoder) else group_of.get(one.column, ""),
                )
                for one in self.fields
            ),
            numbers=(*(one.name for one in self.numbers), *(name for one in self.rates for name in one.names)),
            sequences={one.name: one.like for one in self.sequences},
        )

    def encode(self, batch: pa.RecordBatch, folds: Folds | None = None) -> dict[str, NDArray[Any]]:
        """`ids`, `numbers` and each sequence, as the layout says. `folds`: of rows that are trained on."""
        columns = Columns(batch)
        ids = self._ids(columns)
        plain = len(self.numbers)
        numbers = np.empty((len(columns), plain + 2 * len(self.rates)), np.float32)
        for place, number in enumerate(self.numbers):
            numbers[:, place] = number.encode(columns)
        dealt = fold_of(ids) if folds is not None and self.rates else None
        for place, rate in enumerate(self.rates):
            made = rate.encode(columns) if folds is None or dealt is None else folds.encode(rate, columns, dealt)
            numbers[:, plain + 2 * place : plain + 2 * place + 2] = made
        names = self.layout.names
        own = len(self.fields)  # sequences with ids of their own come after all fields
        found: dict[str, NDArray[Any]] = {"ids": ids, "numbers": numbers}
        for extra, one in enumerate(self.sequences):
            found[one.name] = one.encode(columns, names.index(one.like) if one.like else own + extra)
        return found

    def ids(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        """`ids` alone."""
        return self._ids(Columns(batch))

    def _ids(self, columns: Columns) -> NDArray[np.int64]:
        ids = np.empty((len(columns), len(self.fields)), np.int64)
        for place, field in enumerate(self.fields):
            ids[:, place] = field.encode(columns) + (place << FIELD_BITS)
        return ids

    def labels(self, batch: pa.RecordBatch) -> NDArray[np.float32]:
        """DataError where one is missing, or stands for neither 0 nor 1."""
        if self.label_values:
            return self._mapped_labels(batch)
        found = Columns(batch).numbers(self.label)
        wrong = ~np.isin(found, (0.0, 1.0))
        if wrong.any():
            first = int(np.argmax(wrong))
            value = "nothing" if np.isnan(found[first]) else f"{found[first]:g}"
            raise DataError(f"label {self.label!r}: expected 0 or 1, received {value}")
        return found.astype(np.float32)

    def _mapped_labels(self, batch: pa.RecordBatch) -> NDArray[np.float32]:
        texts = Columns(batch).texts(self.label, Kind.TEXT)
        distinct = [str(text).strip() for text in texts.distinct.to_pylist()]
        unknown = [text for text in distinct if text not in self.label_values]
        if unknown or texts.missing.any():
            received = repr(unknown[0]) if unknown else "nothing"
            known = ", ".join(map(repr, self.label_values))
            raise DataError(
                f"label {self.label!r}: expected one of {known}, received {received}; name it in its values"
            )
        return np.array([self.label_values[text] for text in distinct], np.float32)[texts.codes]

    def weights(self, batch: pa.RecordBatch, name: str) -> NDArray[np.float32]:
        """Of each row. DataError where one is missing, negative or not finite."""
        found = Columns(batch).numbers(name)
        if not (np.isfinite(found) & (found >= 0)).all():
            raise DataError(f"weight {name!r}: expected finite numbers of 0 and more in every row")
        return found.astype(np.float32)

    @cached_property
    def types(self) -> dict[str, pa.DataType]:
        """How to read the raw columns from text: numbers as such, all else as it stands."""
        kinds = {name: pa.float64() if kind is Kind.NUMBER else pa.string() for name, kind in self.columns.items()}
        return {self.label: pa.string() if self.label_values else pa.float64(), **kinds}

    def save(self, directory: Path) -> None:
        replacement.write(directory / FILE, self.model_dump_json() + "\n")

    @classmethod
    def load(cls, directory: Path) -> Front:
        path = directory / FILE
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, ValidationError, ValueError) as exc:
            raise DataError(f"{path}: expected a front of this version: {str(exc).splitlines()[0]}") from exc
