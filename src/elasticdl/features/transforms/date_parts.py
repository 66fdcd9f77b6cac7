"""The transform of dates to their parts: DateParts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from elasticdl.features.transforms import calendar
from elasticdl.features.transforms.base import ElementwiseTransform
from elasticdl.features.transforms.ops import Array, Ops

PARTS = ("year", "month", "day", "yearday", "weekday", "hour", "minute", "second")
MISSING_PART = -1

_WIDTHS = {"%Y": 4, "%y": 2, "%m": 2, "%d": 2, "%H": 2, "%M": 2, "%S": 2}
_ISO = "%Y-%m-%dT%H:%M:%S"
_ISO_PATTERN = r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?Z?)?"


class DirectiveSpan(NamedTuple):
    """The position of the digits of one directive in a text."""

    directive: str
    start: int
    width: int


@dataclass(frozen=True)
class DateParts(ElementwiseTransform):
    """Extracts parts of a date, int64 with a last axis of one number per part: -1 where there is no date.

    Dates come as text, as dates of NumPy or Arrow, or as seconds since 1970. Time zones are not converted. Text is
    ISO 8601 (2014-10-21, 2014-10-21 07:30, 2014-10-21T07:30:00.5Z), or as `format` says, with the directives %Y %y %m
    %d %H %M %S; whole numbers are read by `format` too if it has digits only. Text that is not a date is an error. The
    empty text, a null, NaN and a whole number that does not match `format` are no date.

    Parts are year, month and day from 1, yearday from 0, weekday from 0 for Monday, hour, minute and second.

    >>> DateParts(["hour", "weekday"])(["2014-10-21 07:30:00", ""])
    array([[ 7,  1],
           [-1, -1]])
    >>> DateParts(["month", "hour"], format="%y%m%d%H")([14102123])
    array([[10, 23]])
    """

    parts: Sequence[str]
    format: str | None = None

    def __post_init__(self) -> None:
        parts = (self.parts,) if isinstance(self.parts, str) else tuple(self.parts)
        if not parts or any(part not in PARTS for part in parts):
            raise ValueError(f"DateParts: expected parts of {', '.join(PARTS)}. Received: {self.parts!r}")
        object.__setattr__(self, "parts", parts)
        if self.format is None:
            return
        directives = [piece.directive for piece in self.directive_spans]
        distinct = set(directives)
        if not {"%m", "%d"} <= distinct or len({"%Y", "%y"} & distinct) != 1 or len(distinct) < len(directives):
            raise ValueError(
                f"DateParts: expected a format with one year, %m and %d, each once. Received: {self.format!r}"
            )

    @cached_property
    def directive_spans(self) -> list[DirectiveSpan]:
        """The positions of the digits of all directives."""
        spans, position = [], 0
        for token in re.findall(r"%.|[^%]|%$", self.format or _ISO):
            if token.startswith("%") and token not in _WIDTHS:
                raise ValueError(
                    f"DateParts: expected directives of {' '.join(_WIDTHS)}. Received: {token} in {self.format!r}"
                )
            if token in _WIDTHS:
                spans.append(DirectiveSpan(token, position, _WIDTHS[token]))
            elif not token.isascii():
                raise ValueError(f"DateParts: expected a format of ASCII. Received: {self.format!r}")
            position += _WIDTHS.get(token, 1)
        return spans

    @property
    def pattern(self) -> str:
        """The regular expression of texts that may be dates."""
        if self.format is None:
            return _ISO_PATTERN
        tokens = re.findall(r"%.|[^%]", self.format)
        return "".join(f"[0-9]{{{_WIDTHS[token]}}}" if token in _WIDTHS else re.escape(token) for token in tokens)

    @property
    def is_digits(self) -> bool:
        """Whether `format` has digits only, so that whole numbers can be read by it."""
        return self.format is not None and sum(piece.width for piece in self.directive_spans) == len(self.template)

    @property
    def template(self) -> str:
        """The date 1970-01-01 in this format. It completes a text that ends early."""
        filled = self.format or _ISO
        for directive, text in {"%Y": "1970", "%y": "70", "%m": "01", "%d": "01"}.items():
            filled = filled.replace(directive, text)
        return filled.replace("%H", "00").replace("%M", "00").replace("%S", "00")

    def calendar_fields(self, read: Mapping[str, Array], zero: Array) -> list[Array]:
        """Returns year, month, day, hour, minute and second from the numbers of directives; `zero` if there is none."""
        year = read["%Y"] if "%Y" in read else calendar.full_year(read["%y"])
        return [year, read["%m"], read["%d"], *(read.get(name, zero) for name in ("%H", "%M", "%S"))]

    def compute(self, ops: Ops, values: Array, tables: Mapping[str, Array]) -> Array:
        kind = ops.kind(values)
        if kind == "text":
            is_there, year, month, day, hour, minute, second = ops.parse_dates(values, self)
            days = calendar.days_from_date(year, month, day)
        elif kind == "whole" and self.is_digits:
            number = ops.int64(values)
            year, month, day, hour, minute, second = self.split_digits(number)
            is_there = (number >= 0) & (number < 10 ** len(self.template))
            is_there = is_there & calendar.is_valid_date(year, month, day, hour, minute, second)
            days = calendar.days_from_date(year, month, day)
        else:
            seconds, is_there = _seconds(ops, values, kind)
            days = seconds // calendar.DAY_S
            time_s = seconds - days * calendar.DAY_S
            hour, minute, second = time_s // 3_600, time_s // 60 % 60, time_s % 60
            year, month, day = calendar.date_from_days(days)
        parts = {"year": year, "month": month, "day": day, "hour": hour, "minute": minute, "second": second}
        parts |= {"yearday": days - calendar.days_from_date(year, days * 0 + 1, 1), "weekday": (days + 3) % 7}
        return ops.stack([ops.where(is_there, parts[part], MISSING_PART) for part in self.parts])

    def split_digits(self, number: Array) -> list[Array]:
        """Returns the fields of whole numbers whose decimal digits are dates."""
        end = len(self.template)
        read = {
            piece.directive: number // 10 ** (end - piece.start - piece.width) % 10**piece.width
            for piece in self.directive_spans
        }
        return self.calendar_fields(read, number * 0)


def _seconds(ops: Ops, values: Array, kind: str) -> tuple[Array, Array]:
    if kind == "whole":
        seconds = ops.int64(values)
        return seconds, seconds == seconds
    floats = ops.float64(values)
    is_there = (floats > -(2.0**62)) & (floats < 2.0**62)
    return ops.int64(ops.floor(ops.where(is_there, floats, 0.0))), is_there
