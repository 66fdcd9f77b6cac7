"""An amount of memory as people write it."""

from __future__ import annotations

import re

from elasticdl.errors import DataError


def parse(memory: str) -> int:
    """Bytes: 512MB is 512 millions, 512MiB is 512 times 2**20. DataError where it is no amount."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT])(i?)B?\s*", memory, re.IGNORECASE)
    size = float(found[1]) * (1024 if found[3] else 1000) ** (1 + "KMGT".index(found[2].upper())) if found else 0
    if not found or size < 1:
        raise DataError(f"--memory: expected an amount such as 512MB or 4GB, received {memory!r}")
    return int(size)
