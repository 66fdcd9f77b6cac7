"""The number of examples of properties that are slow, or need many examples."""

from __future__ import annotations

from hypothesis import settings

_QUICK_SHARE = 4
_FEWEST = 5


def examples(thorough: int) -> int:
    """Returns `thorough` in the thorough profile, a quarter of it in others."""
    if settings.get_current_profile_name() == "thorough":
        return thorough
    return max(_FEWEST, thorough // _QUICK_SHARE)
