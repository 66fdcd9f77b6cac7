"""Raw rows to the features a model takes, as preprocessor.json says. Needs Python and NumPy, nothing else.

This file is copied beside an exported model as preprocessor.py:

    import torch
    from preprocessor import Preprocessor

    preprocessor = Preprocessor("preprocessor.json")
    features = preprocessor.encode([{"I1": "3", "C1": "05db9164"}])
    model = torch.export.load("model.pt2").module()
    probabilities = torch.sigmoid(model({name: torch.from_numpy(array) for name, array in features.items()}))

A row is a dict from column to text, number, datetime or None. Columns that a row lacks are missing.
"""

from __future__ import annotations

import bisect
import datetime
import json
import math
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

Row = dict[str, Any]
Spec = dict[str, Any]
Pair = tuple[int, int]
FIELD_BITS, MISSING_ID, UNKNOWN_ID, FIRST_ID, PADDING_ID = 48, 0, 1, 2, -1


class Preprocessor:
    """Encodes rows to the same features as in training, to the bit."""

    def __init__(self, path: str) -> None:
        with open(path, encoding="utf-8") as file:
            self.load_spec(json.load(file))

    def load_spec(self, spec: Spec) -> None:
        if spec["version"] != 1:
            raise ValueError(f"expected a preprocessor of version 1, received {spec['version']}")
        self.spec = spec
        inner = [encoder["encoder"] for encoder in spec["sequences"] + spec["target_encoders"]]
        for encoder in spec["fields"] + inner:
            if encoder["transform"] == "index_lookup":
                encoder["indices"] = {value: index for index, value in enumerate(encoder["vocabulary"])}

    def encode(self, rows: list[Row]) -> dict[str, NDArray[Any]]:
        """Returns `ids` int64 [rows, fields], `numbers` float32 [rows, numbers], and sequences int64 [rows, length]."""
        fields = self.spec["fields"]
        ids = np.zeros((len(rows), len(fields)), np.int64)
        for number, field in enumerate(fields):
            ids[:, number] = [(number << FIELD_BITS) + encode_field(field, row) for row in rows]
        columns = [encode_number(encoder, rows) for encoder in self.spec["numbers"]]
        for encoder in self.spec["target_encoders"]:
            values = [encode_field(encoder["encoder"], row) for row in rows]
            columns += [np.array(encoder[table], np.float32)[values] for table in ("log_odds", "frequencies")]
        numbers = np.stack(columns, axis=1) if columns else np.zeros((len(rows), 0), np.float32)
        features: dict[str, NDArray[Any]] = {"ids": ids, "numbers": numbers}
        names = [field["name"] for field in fields]
        for number, encoder in enumerate(self.spec["sequences"]):
            field = names.index(encoder["like"]) if encoder["like"] else len(fields) + number
            features[encoder["name"]] = encode_sequence(encoder, field, rows)
        return features


def encode_sequence(encoder: Spec, field: int, rows: list[Row]) -> NDArray[Any]:
    padded = np.full((len(rows), encoder["max_length"]), PADDING_ID, np.int64)
    for index, row in enumerate(rows):
        text = read_text(row, encoder["column"], "text") or ""
        pieces = [piece for piece in text.split(encoder["sep"]) if piece]
        for position, piece in enumerate(pieces[-encoder["max_length"] :]):
            padded[index, position] = (field << FIELD_BITS) + encode_text(encoder["encoder"], piece)
    return padded


def read_number(row: Row, column: str) -> float:
    """Returns NaN for a missing value and zero for a subnormal one."""
    value = row.get(column)
    if isinstance(value, str):
        value = value.strip()
    number = math.nan if value is None or value == "" else float(value)
    return number * 0 if abs(number) <= sys.float_info.min else number


def read_text(row: Row, column: str, kind: str) -> str | None:
    """Returns None for a missing value."""
    if kind == "number":
        number = read_number(row, column)
        if math.isnan(number):
            return None
        is_integer = math.isfinite(number) and number == math.floor(number) and abs(number) < 2**53
        return str(int(number)) if is_integer else repr(number)
    value = row.get(column)
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ")
    return None if value is None or value == "" else str(value)


def encode_number(encoder: Spec, rows: list[Row]) -> NDArray[Any]:
    """Computes in float64 up to the difference and from there in float32, as in training."""
    column = encoder["column"]
    if encoder["transform"] == "missing_indicator":
        return np.array([float(read_text(row, column, encoder["kind"]) is None) for row in rows], np.float32)
    values = np.array([read_number(row, column) for row in rows], np.float64)
    if encoder["minimum"] is not None or encoder["maximum"] is not None:
        values = np.clip(values, encoder["minimum"], encoder["maximum"])
    if encoder["log"]:
        values = np.log1p(np.maximum(values - encoder["shift"], 0.0))
    with np.errstate(all="ignore"):
        numbers = flush_subnormals(values.astype(np.float32)) - np.float32(encoder["subtractor"])
        numbers = flush_subnormals(flush_subnormals(numbers) / np.float32(encoder["divisor"]))
    return np.where(np.isnan(values), np.float32(encoder["missing_value"]), numbers)


def flush_subnormals(floats: NDArray[Any]) -> NDArray[Any]:
    """Makes subnormal numbers zero, as TensorFlow does, and every zero positive."""
    return np.where(np.abs(floats) <= np.finfo(np.float32).tiny, np.float32(0), floats)


def encode_field(field: Spec, row: Row) -> int:
    transform = field["transform"]
    if transform == "cross":
        texts = [read_text(row, column, kind) for column, kind in zip(field["columns"], field["kinds"], strict=True)]
        if all(text is None for text in texts):
            return MISSING_ID
        return FIRST_ID + hash_cross([text or "" for text in texts]) % int(field["num_bins"])
    if transform in ("index_lookup", "hashing", "date_parts"):
        text = read_text(row, field["column"], field.get("kind", "date"))
        return MISSING_ID if text is None else encode_text(field, text)
    value = read_number(row, field["column"])
    return MISSING_ID if math.isnan(value) else encode_bin(field, value)


def encode_text(field: Spec, value: str) -> int:
    """Encodes a text that is not missing."""
    if field["transform"] == "hashing":
        return FIRST_ID + fingerprint(value.encode()) % int(field["num_bins"])
    if field["transform"] == "date_parts":
        return FIRST_ID + date_part(value, field["part"])
    num_oov_tokens, index = int(field["num_oov_tokens"]), field["indices"].get(value)
    return 1 + fingerprint(value.encode()) % num_oov_tokens if index is None else 1 + num_oov_tokens + int(index)


def encode_bin(field: Spec, value: float) -> int:
    """Encodes a number that is not missing."""
    transform = field["transform"]
    if transform == "discretization":
        return FIRST_ID + bisect.bisect_right(field["bins"], value)
    if transform == "log_square":
        is_small = value <= 2
        square = math.floor(max(value, -(2.0**31))) - 3 if is_small else bisect.bisect_right(LOG_SQUARES, value)
        return FIRST_ID + min(max(square, int(field["minimum"])), int(field["maximum"])) - int(field["minimum"])
    if transform == "log_round":
        size, number = field["num_bins"], bisect.bisect_right(field["edges"], value) - 1
    else:
        size, number = field["num_buckets"], round(value) if math.isfinite(value) else -1
    return FIRST_ID + number if math.isfinite(value) and 0 <= number < size else UNKNOWN_ID


LOG_SQUARES = [math.exp(math.sqrt(number)) for number in range(1, int(math.log(2.0**63) ** 2) + 1)]


def hash_cross(texts: list[str]) -> int:
    return fingerprint("\x1f".join(texts).encode())


def date_part(value: str, part: str) -> int:
    """Returns one part of a date in ISO 8601."""
    date = datetime.datetime.fromisoformat(value.strip().removesuffix("Z"))
    computed = {"yearday": date.timetuple().tm_yday - 1, "weekday": date.weekday()}
    return computed[part] if part in computed else int(getattr(date, part))


WORD_MASK = (1 << 64) - 1
K0, K1, K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F


def fingerprint(data: bytes) -> int:
    """Returns FarmHash's Fingerprint64, which TensorFlow's to_hash_bucket_fast uses."""
    size = len(data)
    if size > 64:
        return _long(data, size)
    mul = (K2 + 2 * size) & WORD_MASK
    if size > 32:
        return _up_to_64(data, size, mul)
    if size > 16:
        a, b = _fetch64(data, 0) * K1, _fetch64(data, 8)
        c, d = _fetch64(data, size - 8) * mul, _fetch64(data, size - 16) * K2
        return _mix(_rotate(a + b, 43) + _rotate(c, 30) + d, a + _rotate(b + K2, 18) + c, mul)
    if size >= 8:
        a, b = _fetch64(data, 0) + K2, _fetch64(data, size - 8)
        return _mix(_rotate(b, 37) * mul + a, (_rotate(a, 25) + b) * mul, mul)
    if size >= 4:
        first, last = (int.from_bytes(data[offset : offset + 4], "little") for offset in (0, size - 4))
        return _mix(size + (first << 3), last, mul)
    if not size:
        return K2
    y, z = data[0] + (data[size >> 1] << 8), size + (data[-1] << 2)
    return _shift(y * K2 ^ z * K0) * K2 & WORD_MASK


def _up_to_64(data: bytes, size: int, mul: int) -> int:
    a, b = _fetch64(data, 0) * K2, _fetch64(data, 8)
    c, d = _fetch64(data, size - 8) * mul, _fetch64(data, size - 16) * K2
    y = _rotate(a + b, 43) + _rotate(c, 30) + d
    z = _mix(y, a + _rotate(b + K2, 18) + c, mul)
    e, f = _fetch64(data, 16) * mul, _fetch64(data, 24)
    g, h = (y + _fetch64(data, size - 32)) * mul, (z + _fetch64(data, size - 24)) * mul
    return _mix(_rotate(e + f, 43) + _rotate(g, 30) + h, e + _rotate(f + a, 18) + g, mul)


def _long(data: bytes, size: int) -> int:
    y = 81 * K1 + 113 & WORD_MASK
    z = _shift(y * K2 + 113) * K2 & WORD_MASK
    x = 81 * K2 + _fetch64(data, 0) & WORD_MASK
    v, w = (0, 0), (0, 0)
    end = (size - 1) // 64 * 64
    for offset in range(0, end, 64):
        x, y, z, v, w = _round(data, offset, x, y, z, v, w, K1, 1)
    mul = K1 + ((z & 0xFF) << 1)
    w = (w[0] + (size - 1 & 63), w[1])
    v = (v[0] + w[0] & WORD_MASK, v[1])
    w = (w[0] + v[0] & WORD_MASK, w[1])
    x, y, z, v, w = _round(data, size - 64, x, y, z, v, w, mul, 9)
    return _mix(_mix(v[0], w[0], mul) + _shift(y) * K0 + z, _mix(v[1], w[1], mul) + x, mul)


def _round(
    data: bytes, offset: int, x: int, y: int, z: int, v: Pair, w: Pair, mul: int, nine: int
) -> tuple[int, int, int, Pair, Pair]:
    x = _rotate(x + y + v[0] + _fetch64(data, offset + 8), 37) * mul
    y = _rotate(y + v[1] + _fetch64(data, offset + 48), 42) * mul
    x = (x ^ w[1] * nine) & WORD_MASK
    y = y + v[0] * nine + _fetch64(data, offset + 40) & WORD_MASK
    z = _rotate(z + w[0], 33) * mul & WORD_MASK
    v = _weak(data, offset, v[1] * mul, x + w[0])
    w = _weak(data, offset + 32, z + w[1], y + _fetch64(data, offset + 16))
    return z, y, x, v, w


def _weak(data: bytes, offset: int, a: int, b: int) -> Pair:
    p, q, r, s = (_fetch64(data, offset + step) for step in (0, 8, 16, 24))
    a += p
    b = _rotate(b + a + s, 21)
    c = a
    a += q + r
    return a + s & WORD_MASK, b + _rotate(a, 44) + c & WORD_MASK


def _mix(u: int, v: int, mul: int) -> int:
    a = _shift((u ^ v) * mul)
    b = _shift((v ^ a) * mul)
    return b * mul & WORD_MASK


def _shift(value: int) -> int:
    value &= WORD_MASK
    return value ^ value >> 47


def _rotate(value: int, by: int) -> int:
    value &= WORD_MASK
    return (value >> by | value << 64 - by) & WORD_MASK


def _fetch64(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 8], "little")
