"""Names of variables that are the same in every process, whatever else was built there before. Pure.

Keras numbers layers by a count of the process: the second model of a process has `dense_3` where the first had
`dense`. Here each part of a path is numbered anew among its neighbours of the same model, in their order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBERED = re.compile(r"(.+?)_\d+")


def stable(paths: Sequence[str]) -> list[str]:
    """A name for each path, all different."""
    numbered: dict[tuple[str, ...], str] = {}  # the path of a part as Keras has it, to its name here
    taken: set[str] = set()
    names: list[str] = []
    for path in paths:
        parts = path.replace(".", "_").split("/")
        name = ""
        for depth in range(1, len(parts)):
            key = tuple(parts[:depth])
            if key not in numbered:
                numbered[key] = _free(_joined(name, _plain(parts[depth - 1])), set(numbered.values()))
            name = numbered[key]
        name = _free(_joined(name, parts[-1]), taken)
        taken.add(name)
        names.append(name)
    return names


def _plain(part: str) -> str:
    match = _NUMBERED.fullmatch(part)
    return match[1] if match else part


def _joined(parent: str, part: str) -> str:
    return f"{parent}/{part}" if parent else part


def _free(name: str, taken: set[str]) -> str:
    number, free = 0, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free
