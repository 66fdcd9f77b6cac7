"""Suggests the nearest known word for one that is misspelled."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Returns `; did you mean 'train'?` for the closest known word, else `otherwise`."""
    near = get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else otherwise
