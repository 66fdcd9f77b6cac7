"""Raw rows to the features a model takes, as front.json says. Needs Python and NumPy, nothing else.

This file lies beside an exported model:

    import torch
    from served import Front

    front = Front("front.json")
    features = {name: torch.from_numpy(array) for name, array in front.encode([{"I1": "3", "C1": "05db9164"}]).items()}
    chances = torch.sigmoid(torch.export.load("model.pt2").module()(features))

A row is a dict from column to text, number, datetime or None. Columns that are not there are missing.
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
    def __init__(self, path: str) -> None:
        with open(path, encoding="utf-8") as file:
            self.load_spec(json.load(file))

    def load_spec(self, spec: Spec) -> None:
        if spec["version"] != 1:
            raise ValueError(f"expected a front of version 1, found {spec['version']}")
        self.spec = spec
        for one in spec["fields"] + [more["of"] for more in spec["sequences"] + spec["rates"]]:
            if one["how"] == "vocabulary":
                one["places"] = {value: place for place, value in enumerate(one["values"])}

    def encode(self, rows: list[Row]) -> dict[str, NDArray[Any]]:
        """`ids` int64 [rows, fields], `numbers` float32 [rows, numbers], and each sequence int64 [rows, longest]."""
        fields, numbers = self.spec["fields"], self.spec["numbers"]
        ids = np.zeros((len(rows), len(fields)), np.int64)
        for place, field in enumerate(fields):
            ids[:, place] = [(place << FIELD_BITS) + encode_field(field, row) for row in rows]
        columns = [encode_number(one, rows) for one in numbers]
        for one in self.spec["rates"]:
            values = [encode_field(one["of"], row) for row in rows]
            columns += [np.array(one[table], np.float32)[values] for table in ("clicked", "seen")]
        floats = np.stack(columns, axis=1) if columns else np.zeros((len(rows), 0), np.float32)
        found: dict[str, NDArray[Any]] = {"ids": ids, "numbers": floats}
        names = [field["name"] for field in fields]
        for extra, one in enumerate(self.spec["sequences"]):
            field = names.index(one["like"]) if one["like"] else len(fields) + extra
            made = np.full((len(rows), one["longest"]), PADDING_ID, np.int64)
            for at, row in enumerate(rows):
                parts = [part for part in (read_text(row, one["column"], "text") or "").split(one["sep"]) if part]
                for place, part in enumerate(parts[-one["longest"] :]):
                    made[at, place] = (field << FIELD_BITS) + encode_text(one["of"], part)
            found[one["name"]] = made
        return found


def read_number(row: Row, column: str) -> float:
    """NaN where it is missing; a subnormal one is zero."""
    value = row.get(column)
    if isinstance(value, str):
        value = value.strip()
    found = math.nan if value is None or value == "" else float(value)
    return found * 0 if abs(found) <= sys.float_info.min else found


def read_text(row: Row, column: str, kind: str) -> str | None:
    """None where it is missing."""
    if kind == "number":
        found = read_number(row, column)
        if math.isnan(found):
            return None
        is_whole = math.isfinite(found) and found == math.floor(found) and abs(found) < 2**53
        return str(int(found)) if is_whole else repr(found)
    value = row.get(column)
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ")
    return None if value is None or value == "" else str(value)


def encode_number(one: Spec, rows: list[Row]) -> NDArray[Any]:
    """In float64 up to the difference to float32, as in training."""
    if one["how"] == "missing":
        return np.array([float(read_text(row, one["column"], one["kind"]) is None) for row in rows], np.float32)
    values = np.array([read_number(row, one["column"]) for row in rows], np.float64)
    if one["low"] is not None or one["high"] is not None:
        values = np.clip(values, one["low"], one["high"])
    if one["log"]:
        values = np.log1p(np.maximum(values - one["shift"], 0.0))
    with np.errstate(all="ignore"):
        made = flush_subnormals(values.astype(np.float32)) - np.float32(one["subtract"])
        made = flush_subnormals(flush_subnormals(made) / np.float32(one["divide"]))
    return np.where(np.isnan(values), np.float32(one["missing"]), made)


def flush_subnormals(floats: NDArray[Any]) -> NDArray[Any]:
    """Subnormal numbers are zero, as TensorFlow has them, and every zero is the positive one."""
    return np.where(np.abs(floats) <= np.finfo(np.float32).tiny, np.float32(0), floats)


def encode_field(field: Spec, row: Row) -> int:
    how = field["how"]
    if how == "cross":
        texts = [read_text(row, column, kind) for column, kind in zip(field["columns"], field["kinds"], strict=True)]
        if all(one is None for one in texts):
            return MISSING_ID
        return FIRST_ID + hash_cross([one or "" for one in texts]) % int(field["bins"])
    if how in ("vocabulary", "hash", "date"):
        found = read_text(row, field["column"], field.get("kind", "date"))
        return MISSING_ID if found is None else encode_text(field, found)
    value = read_number(row, field["column"])
    return MISSING_ID if math.isnan(value) else encode_bucket(field, value)


def encode_text(field: Spec, value: str) -> int:
    """Of a text that is there."""
    if field["how"] == "hash":
        return FIRST_ID + fingerprint(value.encode()) % int(field["bins"])
    if field["how"] == "date":
        return FIRST_ID + date_part(value, field["part"])
    unknown, place = int(field["unknown"]), field["places"].get(value)
    return 1 + fingerprint(value.encode()) % unknown if place is None else 1 + unknown + int(place)


def encode_bucket(field: Spec, value: float) -> int:
    """Of a number that is there."""
    how = field["how"]
    if how == "bounds":
        return FIRST_ID + bisect.bisect_right(field["bounds"], value)
    if how == "log_square":
        is_small = value <= 2
        made = math.floor(max(value, -(2.0**31))) - 3 if is_small else bisect.bisect_right(LOG_SQUARES, value)
        return FIRST_ID + min(max(made, int(field["lowest"])), int(field["highest"])) - int(field["lowest"])
    if how == "log_round":
        made = bisect.bisect_right(field["edges"], value) - 1 if math.isfinite(value) else -1
    else:
        made = round(value) if math.isfinite(value) else -1
    return FIRST_ID + made if 0 <= made < field["bins"] else UNKNOWN_ID


LOG_SQUARES = [math.exp(math.sqrt(number)) for number in range(1, int(math.log(2.0**63) ** 2) + 1)]


def hash_cross(texts: list[str]) -> int:
    return fingerprint("\x1f".join(texts).encode())


def date_part(value: str, part: str) -> int:
    """Of a date in ISO 8601."""
    date = datetime.datetime.fromisoformat(value.strip().removesuffix("Z"))
    found = {"yearday": date.timetuple().tm_yday - 1, "weekday": date.weekday()}
    return found[part] if part in found else int(getattr(date, part))


WORD_MASK = (1 << 64) - 1
K0, K1, K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F


def fingerprint(data: bytes) -> int:
    """FarmHash's Fingerprint64, as TensorFlow's to_hash_bucket_fast has it."""
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
        first, last = (int.from_bytes(data[at : at + 4], "little") for at in (0, size - 4))
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
    for at in range(0, end, 64):
        x, y, z, v, w = _round(data, at, x, y, z, v, w, K1, 1)
    mul = K1 + ((z & 0xFF) << 1)
    w = (w[0] + (size - 1 & 63), w[1])
    v = (v[0] + w[0] & WORD_MASK, v[1])
    w = (w[0] + v[0] & WORD_MASK, w[1])
    x, y, z, v, w = _round(data, size - 64, x, y, z, v, w, mul, 9)
    return _mix(_mix(v[0], w[0], mul) + _shift(y) * K0 + z, _mix(v[1], w[1], mul) + x, mul)


def _round(
    data: bytes, at: int, x: int, y: int, z: int, v: Pair, w: Pair, mul: int, nine: int
) -> tuple[int, int, int, Pair, Pair]:
    x = _rotate(x + y + v[0] + _fetch64(data, at + 8), 37) * mul
    y = _rotate(y + v[1] + _fetch64(data, at + 48), 42) * mul
    x = (x ^ w[1] * nine) & WORD_MASK
    y = y + v[0] * nine + _fetch64(data, at + 40) & WORD_MASK
    z = _rotate(z + w[0], 33) * mul & WORD_MASK
    v = _weak(data, at, v[1] * mul, x + w[0])
    w = _weak(data, at + 32, z + w[1], y + _fetch64(data, at + 16))
    return z, y, x, v, w


def _weak(data: bytes, at: int, a: int, b: int) -> Pair:
    p, q, r, s = (_fetch64(data, at + step) for step in (0, 8, 16, 24))
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


def _fetch64(data: bytes, place: int) -> int:
    return int.from_bytes(data[place : place + 8], "little")
