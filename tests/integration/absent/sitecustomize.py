"""Makes the modules in ABSENT look as if they were not installed, in every process with this directory on its path."""

from __future__ import annotations

import os
import sys
from typing import Any

_ABSENT = frozenset(os.environ["ABSENT"].split(","))


class _FinderWithout:
    def __init__(self, finder: Any) -> None:
        self._finder = finder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return None if name.partition(".")[0] in _ABSENT else self._finder.find_spec(name, path, target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)


sys.meta_path[:] = [_FinderWithout(finder) for finder in sys.meta_path]
