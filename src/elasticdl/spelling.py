"""Suggests the closest word for one that is misspelled."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, candidates: Iterable[str], otherwise: str = "") -> str:
    """Returns `; did you mean 'train'?` with the closest candidate, or `otherwise` if none is close."""
    matches = get_close_matches(word, list(candidates), n=1)
    return f"; did you mean {matches[0]!r}?" if matches else otherwise
