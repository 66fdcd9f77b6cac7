"""The data of a job: what it reads, and what it does about bad rows."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, Literal, Self

from pydantic import field_validator, model_validator

from elasticdl.spec.fields import NotNegative, Positive, Seconds, SpecModel, parse_size

_PASSWORD = re.compile(r"^postgres(ql)?://[^@?]*:[^@?]*@|://[^/?#@]*:[^/?#@]*@|[?&]password=", re.IGNORECASE)


class BadRows(StrEnum):
    """What a prediction job does about rows that cannot be read or understood."""

    ERROR = "error"  # the job ends at the first
    SKIP = "skip"  # they are left out
    MARK = "mark"  # they are written without predictions, with the reason in a column `error`


class PredictionSpec(SpecModel):
    """The format of predictions on disk."""

    bad_rows: BadRows = BadRows.ERROR
    id_column: str = ""  # a column of the data that is written beside each prediction

    @field_validator("id_column")
    @classmethod
    def _column_is_not_ours(cls, column: str) -> str:
        if column in ("record", "error"):
            raise ValueError(f"predictions have a column {column!r} of their own; rename the column in the data")
        return column


class DataSpec(SpecModel):
    """What is read. Paths go through fsspec; a directory or a glob means all its files."""

    training: str | None = None
    validation: str | None = None
    prediction: str | None = None
    format: Literal["auto", "csv", "jsonl", "parquet", "tfrecord", "images", "python"] = "auto"
    columns: tuple[str, ...] = ()  # names for a CSV without a header line; or the columns to read
    delimiter: str = ""  # between the fields of a CSV file; "": by its name; "tab" is one
    unpack_limit: str = "100Gi"  # the most that one compressed file may become on disk
    retry_s: Seconds = 60.0  # for how long a file, database or object store that went away is waited for
    bad_records: NotNegative = 0  # so many records that cannot be read or understood are skipped
    reader_params: dict[str, Any] = {}  # keyword arguments of custom_data_reader
    shard_records: Positive = 1024  # the unit that is leased and shuffled

    @model_validator(mode="after")
    def _no_address_holds_a_password(self) -> Self:
        # Checked for the whole section: the message about a single value would repeat it.
        for name in ("training", "validation", "prediction"):
            if _PASSWORD.search(getattr(self, name) or ""):
                raise ValueError(
                    f"{name}: the address holds a password, which would end in logs and job descriptions; leave it out "
                    f"and set PGPASSWORD, or PGPASSWORD_FILE to a file with it"
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
