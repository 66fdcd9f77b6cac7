"""The types of fields that all parts of a JobSpec use."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]
SecondsOrOff = Annotated[float, Field(ge=0)]  # 0: off


class SpecModel(BaseModel):
    # Keeps infinite parameters: by default they become null in JSON, and a worker would read None.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


_DECIMAL = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS = _DECIMAL | {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}


def parse_size(text: str) -> int:
    """Bytes in 4Gi, 500M or 1024; 0 for nothing."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?i?)B?", text.strip())
    if text.strip() and (match is None or match[2] not in _UNITS):
        raise ValueError("use a number of bytes, optionally with K, M, G, Ki, Mi or Gi, e.g. 4Gi")
    return int(float(match[1]) * _UNITS[match[2]]) if match else 0
