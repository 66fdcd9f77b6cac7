"""Arrow text to numbers and to dates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import DataError
from elasticdl.features.transforms import calendar

if TYPE_CHECKING:
    from elasticdl.features.transforms.date_parts import DateParts
    from elasticdl.features.transforms.to_number import ToNumber


def numbers(texts: Any, to: ToNumber) -> NDArray[Any]:
    """As `to` says. DataError names the first text that is no number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    trimmed, is_there = _trimmed(texts)
    kept = trimmed.filter(pa.array(is_there))
    _expect(kept, to.pattern, f"numbers of {to.out_type}")
    try:
        read = pc.replace_substring_regex(kept, r"^\+", "").cast(getattr(pa, to.out_type)())
    except pa.ArrowInvalid as exc:
        raise DataError(f"expected numbers of {to.out_type}: {exc}") from exc
    found = np.full(len(texts), to.default_value, to.out_type)
    found[is_there] = read.to_numpy(zero_copy_only=False)
    if not to.is_whole:
        tiny = np.abs(found) <= np.finfo(found.dtype).tiny
        found[tiny] = 0
    return found


def dates(texts: Any, form: DateParts) -> list[NDArray[Any]]:
    """Which are there; then year, month, day, hour, minute and second. DataError names the first that is no date."""
    import pyarrow as pa
    import pyarrow.compute as pc

    trimmed, is_there = _trimmed(texts)
    _expect(trimmed.filter(pa.array(is_there)), form.pattern, f"dates as {form.form or 'ISO 8601'}")
    if not len(texts):
        return [is_there, *(np.zeros(0, np.int64),) * 6]
    template = np.frombuffer(form.template.encode(), np.uint8)
    size = len(template)
    # Each text cut to the length of the template; what a text lacks is as in the template.
    cut = pc.utf8_rpad(pc.utf8_slice_codeunits(trimmed, 0, size), size, "\0").cast(pa.binary())
    letters = np.frombuffer(b"".join(cut.to_pylist()), np.uint8).reshape(-1, size)
    lengths = pc.utf8_length(trimmed).to_numpy(zero_copy_only=False)
    digits = np.where(np.arange(size) < lengths[:, np.newaxis], letters, template).astype(np.int64) - ord("0")
    read = {}
    for piece in form.pieces:
        powers = 10 ** np.arange(piece.width - 1, -1, -1)
        read[piece.directive] = digits[:, piece.start : piece.start + piece.width] @ powers
    civil = form.civil(read, np.zeros(len(texts), np.int64))
    if len(wrong := np.flatnonzero(~calendar.is_date(*civil))):
        raise DataError(f"expected dates as {form.form or 'ISO 8601'}. Received: {trimmed[int(wrong[0])].as_py()!r}")
    return [is_there, *civil]


def _trimmed(texts: Any) -> tuple[Any, NDArray[np.bool_]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        plain = texts.cast(pa.string()).fill_null("")
    except pa.ArrowInvalid as exc:
        raise DataError(f"expected text in UTF-8: {exc}") from exc
    trimmed = pc.ascii_trim_whitespace(plain)
    return trimmed, pc.not_equal(trimmed, "").to_numpy(zero_copy_only=False)


def _expect(texts: Any, pattern: str, what: str) -> None:
    import pyarrow.compute as pc

    is_right = pc.match_substring_regex(texts, f"^({pattern})$")
    if not pc.all(is_right).as_py() and len(texts):
        wrong = texts.filter(pc.invert(is_right))[0].as_py()
        raise DataError(f"expected {what}. Received: {wrong!r}")
