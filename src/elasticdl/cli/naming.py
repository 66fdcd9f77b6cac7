"""Names for jobs that were given none: readable, sortable by time, new."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from random import Random
from typing import Any

from elasticdl.spec.job import NAME

_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # none that look alike


def generate(stem: str, now: datetime, random: Random, is_taken: Callable[[str], bool]) -> str:
    """For example mnist-20261115-1307-x3: short enough for a job on a cluster, too."""
    label = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:32].strip("-") or "job"
    while True:
        name = f"{label}-{now:%Y%m%d-%H%M}-{random.choice(_LETTERS)}{random.choice(_LETTERS)}"
        if not is_taken(name):
            assert NAME.fullmatch(name), name
            return name


def stem_of(document: dict[str, Any]) -> str:
    """The word a job is best called by: its model's file or its script."""
    definition = (document.get("model") or {}).get("definition")
    if isinstance(definition, str) and definition:
        parts = definition.split(".")
        return parts[-2] if len(parts) > 1 else parts[0]
    path = (document.get("script") or {}).get("path")
    return str(path).rpartition("/")[2].removesuffix(".py") if path else "job"
