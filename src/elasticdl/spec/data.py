"""The data of a job, and how it handles bad rows."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, Literal, Self

from pydantic import field_validator, model_validator

from elasticdl.spec.fields import NotNegative, Positive, Seconds, SpecModel, parse_size

_PASSWORD = re.compile(r"^postgres(ql)?://[^@?]*:[^@?]*@|://[^/?#@]*:[^/?#@]*@|[?&]password=", re.IGNORECASE)


class BadRows(StrEnum):
    """How a prediction job handles rows that cannot be read or processed."""

    ERROR = "error"  # the first one fails the job
    SKIP = "skip"  # they are omitted
    MARK = "mark"  # they are written without predictions, with the reason in a column `error`


class PredictionSpec(SpecModel):
    """The format of predictions on disk."""

    bad_rows: BadRows = BadRows.ERROR
    id_column: str = ""  # a column of the data that is written next to each prediction

    @field_validator("id_column")
    @classmethod
    def _column_is_not_ours(cls, column: str) -> str:
        if column in ("record", "error"):
            raise ValueError(f"predictions already have a column {column!r}; rename the column in the data")
        return column


class DataSpec(SpecModel):
    """The data to read. Paths are opened by fsspec; a directory or a glob means all its files."""

    training: str | None = None
    validation: str | None = None
    prediction: str | None = None
    format: Literal["auto", "csv", "jsonl", "parquet", "tfrecord", "images", "python"] = "auto"
    columns: tuple[str, ...] = ()  # names of the columns of a CSV file without a header, or the columns to read
    delimiter: str = ""  # between the fields of a CSV file, such as "tab"; "": by the file name
    unpack_limit: str = "100Gi"  # maximum size of one decompressed file on disk
    retry_s: Seconds = 60.0  # how long to wait for a file, database or object store that is unavailable
    bad_records: NotNegative = 0  # how many records that cannot be read or processed are skipped
    reader_params: dict[str, Any] = {}  # keyword arguments of custom_data_reader
    shard_records: Positive = 1024  # the unit that is leased and shuffled

    @model_validator(mode="after")
    def _no_address_has_a_password(self) -> Self:
        # Checked for the section, because the error of a single field repeats its value.
        for name in ("training", "validation", "prediction"):
            if _PASSWORD.search(getattr(self, name) or ""):
                raise ValueError(
                    f"{name}: the address contains a password, which would appear in logs and job descriptions; remove "
                    f"it and set PGPASSWORD, or PGPASSWORD_FILE to a file that contains it"
                )
        return self

    @field_validator("delimiter")
    @classmethod
    def _delimiter_is_a_letter(cls, delimiter: str) -> str:
        delimiter = {"tab": "\t", "\\t": "\t"}.get(delimiter, delimiter)
        if delimiter and (len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n'):
            raise ValueError("use one ASCII character that is neither a quote nor a newline, e.g. ';', '|' or tab")
        return delimiter

    @field_validator("unpack_limit")
    @classmethod
    def _limit_is_a_size(cls, limit: str) -> str:
        parse_size(limit)
        return limit

    @property
    def unpack_bytes(self) -> int:
        return parse_size(self.unpack_limit)
